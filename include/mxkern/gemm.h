// mxkern/gemm.h: the block-scaled matrix product.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

#include "mxkern/core/buffer.h"
#include "mxkern/core/platform.h"
#include "mxkern/tensor/block_scaled.h"

namespace mxkern {

// The left operand: quantized, or a plain tensor.
using GemmOperand = std::variant<BlockScaled, Buffer>;

struct Workspace {
  void* data = nullptr;
  std::size_t bytes = 0;
};

struct GemmOptions {
  float alpha = 1.0f;
  float beta = 0.0f;             // not 0: beta * out is added to what is written to out
  const Buffer* bias = nullptr;  // [1, 1, N], any dtype: added to every row
};

// out[M, N] = alpha * a[M, K] . b[N, K]^T + beta * out + bias, summed in float32, rounded once to
// out's dtype. Batches are equal, or b has one matrix that serves every one of a's.
// Any scheme with any scheme; a may be plain float32, float16 or bfloat16. The products are exact;
// only their float32 sum rounds. K = 0 leaves beta * out + bias. Deterministic.
// Inf and NaN propagate as in any product; a poisoned block reaches its row or column only.
// workspace: at least gemm_workspace_bytes of the same arguments, aligned to 64.
// Throws InvalidArgument, and Unsupported where a device is not.
MXKERN_API void gemm(const GemmOperand& a, const BlockScaled& b, const Buffer& out,
                     const GemmOptions& options, Workspace workspace, Stream stream = {});

MXKERN_API std::size_t gemm_workspace_bytes(const GemmOperand& a, const BlockScaled& b,
                                            const Buffer& out);

}  // namespace mxkern
