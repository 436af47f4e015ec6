// cpu/instances/avx2_panels.cc: products of few rows with panels for AVX2.
#include "cpu/gemm/finish.h"
#include "cpu/gemm/instances.h"
#include "cpu/gemm/panels/multiply_avx2.h"

namespace mxkern::cpu {

const GemmKernels gemm_kernels_avx2_panels = {
    GemmUnit::avx2_panels, row_shifts,       pack_left_in_pairs,
    keep_panels,           do_nothing,       do_nothing,
    multiply_panels_avx2,  tile_is_at_least, finish_tile};

}  // namespace mxkern::cpu
