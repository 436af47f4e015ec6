// plan/decode/limits.h: which products of few tokens there are kernels for, and the memory of their
// operands.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/tensor/decode_layout.h"
#include "mxkern/tensor/planned_operand.h"
#include "plan/core_rows.h"
#include "tuning/h200.h"

namespace mxkern::cuda {

// Weights [batch, N, K] in DecodeLayout, matrix after matrix.
constexpr std::int64_t reordered_bytes(Scheme scheme, const Shape& shape) {
  return shape.batch * DecodeLayout::of(scheme, shape.rows, shape.columns).size();
}

// Of all tokens, those of a batch that shares its weights included; where the device has the tensor
// cores of Hopper's warpgroups; and of quantized operands that could be folded as well.
inline constexpr std::int64_t few_tokens = tuning::h200::few::most_tokens;
inline constexpr std::int64_t few_tokens_sm90 = tuning::h200::few::most_tokens_sm90;
inline constexpr std::int64_t few_quantized_tokens = tuning::h200::few::most_quantized;

// Whether multiply_decode takes the product, and is the fastest way: tokens in 16 bits and few, a
// device of compute capability 9.0 to 11.x (only 9.0 was ever executed). Reordered weights; others
// cost a pass over them more.
constexpr bool takes_decode(DType x_dtype, std::int64_t tokens, int compute_capability) {
  return x_dtype != DType::float32 && tokens <= few_tokens && compute_capability >= 90 &&
         compute_capability < 120;
}

// Whether there is a thread block for each tile of the weights' rows, and for those that idle.
constexpr bool counts_decode(Scheme scheme, const Shape& weights) {
  constexpr std::int64_t most_blocks = 65535, most_idle = 1023;
  return DecodeLayout::of(scheme, weights.rows, weights.columns).tiles_down() <=
         most_blocks - most_idle;
}

// Whether a batch of tokens is multiplied as one matrix: its weights are the same, and memory
// allows it.
constexpr bool merges_tokens(const PlannedTensor& x, const Shape& weights,
                             const PlannedTensor& out) {
  return weights.batch == 1 && x.shape.batch > 1 && is_one_matrix(x) && is_one_matrix(out);
}

// Memory for tokens whose rows do not start on 16 bytes: they are copied to whole tiles of weights.
constexpr std::size_t copied_tokens_bytes(const PlannedTensor& x) {
  if (starts_on_16(x)) return 0;
  const std::int64_t columns = round_up(x.shape.columns, DecodeLayout::tile_columns);
  const std::int64_t bytes = x.shape.batch * x.shape.rows * columns * 2;
  return static_cast<std::size_t>(round_up(bytes, DecodeLayout::alignment));
}

// Whether FP8 tensor cores take these rows, folded, with weights that are decoded to E5M2: there
// are kernels of E4M3 rows and MXFP4 weights.
constexpr bool takes_decode_folded(Scheme rows, const PlannedOperand& weights) {
  return fold_facts(rows).can_fold && fold_facts(rows).element == CoreElement::e4m3 &&
         weights.scheme == Scheme::mxfp4 && counts_decode(weights.scheme, weights.shape);
}

// Memory for folded rows in the order in which they meet reordered weights: the rows, then their
// exponents.
constexpr std::int64_t interleaved_row_bytes(std::int64_t columns) { return round_up(columns, 16); }
constexpr std::int64_t interleaved_exponents(const Shape& x) {
  return round_up(x.batch * x.rows * interleaved_row_bytes(x.columns), 256);
}
constexpr std::size_t interleaved_bytes(const Shape& x) {
  const std::int64_t exponents = x.batch * x.rows * std::int64_t{sizeof(std::int32_t)};
  return static_cast<std::size_t>(interleaved_exponents(x) + exponents);
}

}  // namespace mxkern::cuda
