// cpu/instances/avx512_panels.cc: products of few rows with panels in float32 lanes of AVX-512.
#include "cpu/gemm/finish.h"
#include "cpu/gemm/instances.h"
#include "cpu/gemm/panels/multiply_avx512.h"

namespace mxkern::cpu {

const GemmKernels gemm_kernels_avx512_panels = {GemmUnit::avx512_panels,
                                                row_shifts,
                                                pack_left_whole<false>,
                                                keep_panels,
                                                do_nothing,
                                                do_nothing,
                                                multiply_panels<FloatProducts>,
                                                tile_is_at_least,
                                                finish_tile};

}  // namespace mxkern::cpu
