// cuda/grouped_launch.h: the launches of grouped products, declared; instances hold their bodies.
#pragma once

#include "cuda/few_launch.h"

namespace mxkern::cuda {

// By the kernels of launch_few and launch_few_sm90, for rows that belong to groups: on devices of
// compute capability 9.0 to 11.x.
template <class S, bool IsHalf>
void launch_grouped(const char* function, const FewPlan& plan, dim3 grid,
                    const kernels::FewParameters& p, const CUtensorMap& tokens, Stream stream);

}  // namespace mxkern::cuda
