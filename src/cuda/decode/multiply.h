// cuda/decode/multiply.h: few tokens times block-scaled weights, at the speed of reading the
// weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/operands/row_scaled.h"
#include "mxkern/core/buffer.h"
#include "mxkern/gemm.h"
#include "mxkern/tensor/block_scaled.h"
#include "plan/decode/limits.h"

namespace mxkern {
struct DecodePlan;
}

namespace mxkern::cuda {

// Weights [batch, N, K] in DecodeLayout, matrix after matrix; data is aligned to 128 bytes.
struct ReorderedWeights {
  Scheme scheme = Scheme::mxfp4;
  Shape shape;
  const std::uint8_t* data = nullptr;
  Device device;
};

// Codes and scales in the order of DecodeLayout; reordered_bytes of memory, aligned to 128.
void reorder_weights(const char* function, const BlockScaled& weights, std::uint8_t* destination,
                     Stream stream);

// Of tokens that stand for something else.
struct TokenSource {
  const std::int32_t* exponents = nullptr;  // [batch, M], powers of two of rows; null: all 0
  bool is_expanded = false;  // by a kernel right ahead, which has multiprocessors meanwhile
  bool is_folded = false;    // they are what interleave_rows left
};

// out[M, N] = finish(x[M, K] . w[N, K]^T): x bfloat16 or float16, rows anywhere; exact products,
// summed in float32 in an order that is always the same. Batches are equal, or the weights have one
// matrix. finish.right_tensor_scale is the weights'. workspace: copied_tokens_bytes, aligned to
// 128; what is in it does not matter, before and after. The weights and their tensor scale are read
// while kernels ahead in the stream still run: they are to be complete before this is called, or
// come from reorder_weights. plan: that of the product, which is made here where it is null.
void multiply_decode(const char* function, const Buffer& x, const ReorderedWeights& weights,
                     const CoreFinish& finish, Workspace workspace, Stream stream,
                     const TokenSource& source = {}, const DecodePlan* plan = nullptr);

// The same of folded rows, E4M3, and weights of MXFP4: on FP8 tensor cores of Hopper, with the
// error of folded products. memory: interleaved_bytes of the rows, aligned to 256.
void multiply_decode_folded(const DecodePlan& plan, const char* function, const RowScaled& x,
                            const ReorderedWeights& weights, const CoreFinish& finish, void* memory,
                            Stream stream);

// The same by a plan for Hopper that is not the one which would be chosen, for tests and tuning.
void multiply_decode_by(const DecodePlan& plan, const char* function, const Buffer& x,
                        const ReorderedWeights& weights, const CoreFinish& finish,
                        Workspace workspace, Stream stream);

}  // namespace mxkern::cuda
