// cuda/multiply_few.h: few tokens times block-scaled weights, at the speed of reading the weights.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/row_scaled.h"
#include "mxkern/core/buffer.h"
#include "mxkern/gemm.h"
#include "mxkern/tensor/block_scaled.h"
#include "mxkern/tensor/decode_layout.h"

namespace mxkern {
struct FewPlan;
}

namespace mxkern::cuda {

// Weights [batch, N, K] in DecodeLayout, matrix after matrix; data is aligned to 128 bytes.
struct ReorderedWeights {
  Scheme scheme = Scheme::mxfp4;
  Shape shape;
  const std::uint8_t* data = nullptr;
  Device device;
};

constexpr std::int64_t reordered_bytes(Scheme scheme, const Shape& shape) {
  return shape.batch * DecodeLayout::of(scheme, shape.rows, shape.columns).size();
}

// Of all tokens, those of a batch that shares its weights included.
inline constexpr std::int64_t few_tokens = 256;

// The same where the device has the tensor cores of Hopper's warpgroups: from there on it takes
// less to expand the weights in the call, 50 us for 8192 x 8192 on an H200.
inline constexpr std::int64_t few_tokens_sm90 = 2048;

// Of quantized operands that could be folded as well: with more it takes less to do so in the call.
inline constexpr std::int64_t few_quantized_tokens = 384;

// Whether multiply_few takes the product, and is the fastest way: tokens in 16 bits and few, a
// device of compute capability 9.0 to 11.x (only 9.0 was ever executed). Reordered weights; others
// cost a pass over them more.
constexpr bool takes_few(DType x_dtype, std::int64_t tokens, int compute_capability) {
  return x_dtype != DType::float32 && tokens <= few_tokens && compute_capability >= 90 &&
         compute_capability < 120;
}

// Whether there is a thread block for each tile of the weights' rows, and for those that idle.
constexpr bool counts_few(Scheme scheme, const Shape& weights) {
  constexpr std::int64_t most_blocks = 65535, most_idle = 1023;
  return DecodeLayout::of(scheme, weights.rows, weights.columns).tiles_down() <=
         most_blocks - most_idle;
}

// Whether a batch of tokens is multiplied as one matrix: its weights are the same, and memory
// allows it.
inline bool merges_tokens(const Buffer& x, const Shape& weights, const Buffer& out) {
  return weights.batch == 1 && x.shape.batch > 1 && is_one_matrix(x) && is_one_matrix(out);
}

// Memory for tokens whose rows do not start on 16 bytes: they are copied to whole tiles of weights.
inline std::size_t copied_tokens_bytes(const Buffer& x) {
  if (starts_on_16(x)) return 0;
  const std::int64_t columns = round_up(x.shape.columns, DecodeLayout::tile_columns);
  const std::int64_t bytes = x.shape.batch * x.shape.rows * columns * 2;
  return static_cast<std::size_t>(round_up(bytes, DecodeLayout::alignment));
}

// Codes and scales in the order of DecodeLayout; reordered_bytes of memory, aligned to 128.
void reorder_weights(const char* function, const BlockScaled& weights, std::uint8_t* destination,
                     Stream stream);

// Of tokens that stand for something else.
struct TokenSource {
  const std::int32_t* exponents = nullptr;  // [batch, M], powers of two of rows; null: all 0
  bool is_expanded = false;  // by a kernel right ahead, which has multiprocessors meanwhile
};

// out[M, N] = finish(x[M, K] . w[N, K]^T): x bfloat16 or float16, rows anywhere; exact products,
// summed in float32 in an order that is always the same. Batches are equal, or the weights have one
// matrix. finish.right_tensor_scale is the weights'. workspace: copied_tokens_bytes, aligned to
// 128; what is in it does not matter, before and after. The weights and their tensor scale are read
// while kernels ahead in the stream still run: they are to be complete before this is called, or
// come from reorder_weights.
void multiply_few(const char* function, const Buffer& x, const ReorderedWeights& weights,
                  const CoreFinish& finish, Workspace workspace, Stream stream,
                  const TokenSource& source = {});

// The same by a plan for Hopper that is not the one which would be chosen, for tests and tuning.
void multiply_few_by(const FewPlan& plan, const char* function, const Buffer& x,
                     const ReorderedWeights& weights, const CoreFinish& finish, Workspace workspace,
                     Stream stream);

}  // namespace mxkern::cuda
