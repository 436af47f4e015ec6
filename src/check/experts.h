// check/experts.h: the checks of the arguments of what mixtures of experts compute beside products.
#pragma once

#include "mxkern/expert_layer.h"
#include "mxkern/gemm.h"
#include "mxkern/swiglu.h"

namespace mxkern {

// Numbers that mean something, and a layout that there is.
void check_swiglu(const char* function, const SwigluOptions& options);

// Shapes, devices, pointers and overlaps of combine, but its working memory. The numbers of rows
// are not read. Throws InvalidArgument.
void check_combine(const Buffer& y, const std::int32_t* rows, const float* weights,
                   const Buffer& out);

// The same of expert_layer.
void check_expert_layer(const GemmOperand& x, const ExpertWeights& weights,
                        const ExpertRouting& routing, const Buffer& out,
                        const ExpertLayerOptions& options);

// `bytes` of memory that is aligned and nobody else's. Arguments that are checked.
void check_expert_workspace(Workspace workspace, std::size_t bytes, const GemmOperand& x,
                            const ExpertWeights& weights, const ExpertRouting& routing,
                            const Buffer& out);

}  // namespace mxkern
