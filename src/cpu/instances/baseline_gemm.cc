// cpu/instances/baseline_gemm.cc: the matrix product in float32, compiled for baseline.
#include "cpu/gemm/float32_unit.h"

namespace mxkern::cpu {

const GemmKernels gemm_kernels_baseline = float32_kernels<GemmUnit::baseline>();
const GemmKernels gemm_kernels_baseline_few_rows = few_row_kernels<GemmUnit::baseline_few_rows>();

}  // namespace mxkern::cpu
