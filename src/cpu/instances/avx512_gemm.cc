// cpu/instances/avx512_gemm.cc: the matrix product in float32, compiled for avx512.
#include "cpu/gemm/float32_unit.h"

namespace mxkern::cpu {

const GemmKernels gemm_kernels_avx512 = float32_kernels<GemmUnit::avx512>();
const GemmKernels gemm_kernels_avx512_few_rows = few_row_kernels<GemmUnit::avx512_few_rows>();

}  // namespace mxkern::cpu
