// cpu/instances/avx512_bf16_gemm.cc: the matrix product with AVX-512's bfloat16 dot products.
#include "cpu/gemm/instances.h"
#include "cpu/gemm/multiply_avx512_bf16.h"

namespace mxkern::cpu {
namespace {

void do_nothing() {}

}  // namespace

const GemmKernels gemm_kernels_avx512_bf16 = {
    GemmUnit::avx512_bf16, bf16::row_shifts,   bf16::pack_left,
    bf16::pack_right,      do_nothing,         do_nothing,
    multiply_avx512_bf16,  bf16::are_at_least, bf16::finish};

}  // namespace mxkern::cpu
