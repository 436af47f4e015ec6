// cpu/instances/avx2_gemm.cc: the matrix product in float32, compiled for avx2.
#include "cpu/gemm/float32_unit.h"

namespace mxkern::cpu {

const GemmKernels gemm_kernels_avx2 = float32_kernels<GemmUnit::avx2>();
const GemmKernels gemm_kernels_avx2_few_rows = few_row_kernels<GemmUnit::avx2_few_rows>();

}  // namespace mxkern::cpu
