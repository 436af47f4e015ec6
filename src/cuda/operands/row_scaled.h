// cuda/operands/row_scaled.h: matrices as tensor cores take them: elements along K, one power of
// two a row.
#pragma once

#include <cstdint>

#include "mxkern/core/buffer.h"
#include "mxkern/core/dtype.h"
#include "mxkern/tensor/scale_layout.h"
#include "plan/core_rows.h"

namespace mxkern::cuda {

// Bytes from four scales of a row to the next four.
inline int word_step(const ScaleIndex& index) {
  return index.layout == ScaleLayout::swizzled ? ScaleIndex::tile_bytes : ScaleIndex::tile_blocks;
}

// Words of working memory that a kernel ahead of a product sets to zeros.
struct ZeroedWords {
  std::uint32_t* data = nullptr;
  int count = 0;
};

// What the other rows are made from.
struct LateSource {
  const std::uint8_t* codes = nullptr;  // null: all rows are ready
  const std::uint8_t* scales = nullptr;
  ScaleIndex scale_index = {};
  FirstRows first;
  int exponent = 0;  // of the largest elements of an expanded row
};

// A view, K contiguous. data, row_bytes and batch_bytes are multiples of 16; what lies behind the
// last column of a row is never read. An element's value is element * 2^exponents[row].
struct RowScaled {
  CoreElement element;
  const void* data;
  std::int64_t batch, rows, columns;
  std::int64_t row_bytes, batch_bytes;  // batch 1 serves every matrix of the other operand
  const std::int32_t* exponents;        // [batch, rows]; null: all 0
  const std::uint8_t* spreads;  // [batch, rows], octaves that the row was folded over; null: 0
  // More than 1: the left operand's rows hold `parts` runs of `columns` elements, each starting at
  // a multiple of part_bytes, whose sum is the element; the right operand serves each of them.
  int parts = 1;
  std::int64_t part_bytes = 0;
  // Not null: the elements are E4M3 codes under these E8M0 scales. scale_index: of one matrix.
  const std::uint8_t* scales = nullptr;
  ScaleIndex scale_index = {};
  LateSource late = {};  // of one matrix whose rows follow one another
};

// Copies of rows of a matrix: which ones, on the device, and how many; none: all, as they are.
struct RowCopies {
  const std::int32_t* rows = nullptr;
  std::int64_t count = 0;
};

// Lets a kernel return at once, decided on the device: it runs where "every spread is within its
// limit" equals `wants_narrow`.
struct CoreGate {
  bool is_open = true;  // no question
  bool wants_narrow = true;
  std::uint8_t left_limit = 0, right_limit = 0;
  // The kernel ahead lets this one start only when all spreads are there.
  bool is_settled = false;
};

// What becomes of the sums: alpha * the tensor scales * 2^(exponents of row and column) * sum +
// beta * out + bias, rounded once to out's dtype.
struct CoreFinish {
  float alpha = 1.0f;
  const float* left_tensor_scale = nullptr;   // on the device; null: 1
  const float* right_tensor_scale = nullptr;  //
  float beta = 0.0f;
  const void* bias = nullptr;  // [N] or null
  DType bias_dtype = DType::float32;
  Buffer out;  // [batch, M, N]
};

// All of it but the output, for the parameters of a kernel, which have it by the same names.
template <class Parameters>
void put_finish(const CoreFinish& finish, Parameters& p) {
  p.alpha = finish.alpha;
  p.beta = finish.beta;
  p.left_tensor_scale = finish.left_tensor_scale;
  p.right_tensor_scale = finish.right_tensor_scale;
  p.bias = finish.bias;
  p.bias_dtype = finish.bias_dtype;
}

}  // namespace mxkern::cuda
