// plan/hopper/overlap.h: what a product on Hopper does with operands while it multiplies them.
#pragma once

#include "plan/gemm_cuda.h"

namespace mxkern {

// Of a plan that says which operands are folded and expanded, and has no memory yet: codes that are
// decoded in registers instead, and rows that the product itself makes ready.
void plan_under_way_sm90(const GemmProblem& problem, int processors, CudaGemmPlan& plan);

}  // namespace mxkern
