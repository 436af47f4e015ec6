// cpu/instances/avx512_bf16_panels.cc: products of few rows with panels by dot products of
// bfloat16.
#include "cpu/gemm/finish.h"
#include "cpu/gemm/instances.h"
#include "cpu/gemm/panels/multiply_avx512.h"

namespace mxkern::cpu {

const GemmKernels gemm_kernels_avx512_bf16_panels = {GemmUnit::avx512_bf16_panels,
                                                     row_shifts,
                                                     pack_left_whole<true>,
                                                     keep_panels,
                                                     do_nothing,
                                                     do_nothing,
                                                     multiply_panels<PairProducts>,
                                                     tile_is_at_least,
                                                     finish_tile};

}  // namespace mxkern::cpu
