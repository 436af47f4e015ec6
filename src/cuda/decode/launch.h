// cuda/decode/launch.h: the few-token kernels' launches, declared; instances hold their bodies.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "mxkern/core/device.h"
#include "mxkern/core/dtype.h"
#include "plan/decode/plan.h"

namespace mxkern::kernels {
struct DecodeParameters;
struct RowBoxes;
struct ReorderParameters;
}  // namespace mxkern::kernels

namespace mxkern::cuda {

// `tokens`: boxes of p.group_tokens rows and 128 bytes.
template <class S>
void launch_decode(const char* function, DType x_dtype, const DecodePlan& plan, dim3 grid,
                   const kernels::DecodeParameters& p, const CUtensorMap& tokens, Stream stream);

// The same. IsHalf: float16 tokens.
template <class S, bool IsHalf>
void launch_decode_sm90(const char* function, const DecodePlan& plan, dim3 grid,
                        const kernels::DecodeParameters& p, const CUtensorMap& tokens,
                        Stream stream);

// By kernels for both, where rows belong to groups: on devices of compute capability 9.0 to 11.x.
template <class S, bool IsHalf>
void launch_grouped(const char* function, const DecodePlan& plan, dim3 grid,
                    const kernels::DecodeParameters& p, const kernels::RowBoxes& rows,
                    Stream stream);

// Both of folded rows and weights of MXFP4, on Hopper.
void launch_decode_folded(const char* function, const DecodePlan& plan, dim3 grid,
                          const kernels::DecodeParameters& p, const CUtensorMap& tokens,
                          Stream stream);
void launch_grouped_folded(const char* function, const DecodePlan& plan, dim3 grid,
                           const kernels::DecodeParameters& p, const CUtensorMap& tokens,
                           Stream stream);

template <class S>
void launch_reorder(const char* function, const kernels::ReorderParameters& p, dim3 grid,
                    Stream stream);

}  // namespace mxkern::cuda
