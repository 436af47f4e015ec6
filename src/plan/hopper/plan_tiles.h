// plan/hopper/plan_tiles.h: how a product on Hopper goes through the tiles of its output.
#pragma once

#include "plan/gemm_cuda.h"
#include "plan/hopper/tiles.h"

namespace mxkern {

struct TilingSm90 {
  cuda::TileSm90 tile;
  kernels::WorkOrder work;
};

// Of an output of this shape, for the folded or the exact product. It does not depend on what was
// prepared, so that neither do the bytes of the result.
TilingSm90 tiling_sm90(const GemmProblem& problem, const Shape& out, bool is_folded,
                       int processors);

// The same of an exact product that is computed as its transpose, which decodes the right operand.
TilingSm90 transposed_tiling_sm90(const GemmProblem& problem, const Shape& out, int processors);

// Of both, where one kernel computes either.
cuda::FusedDispatchTilesSm90 fused_dispatch_tiling_sm90(const GemmProblem& problem,
                                                        const Shape& out, int processors);

// Adds memory for tiles that are divided along K to a plan that has all other memory.
void place_parts_sm90(const GemmProblem& problem, int processors, CudaGemmPlan& plan);

}  // namespace mxkern
