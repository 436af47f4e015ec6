// cuda/row_scaled.h: matrices as tensor cores take them: elements along K, one power of two a row.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mxkern/core/buffer.h"
#include "mxkern/core/dtype.h"
#include "mxkern/numerics/visit.h"
#include "mxkern/tensor/scale_layout.h"

namespace mxkern::cuda {

enum class CoreElement : std::uint8_t { e4m3, e5m2, bfloat16 };

// Rows, and columns, of what kernels count in 31 bits, with room for the tile that begins last: the
// copy engine's coordinates are such.
inline constexpr std::int64_t most_extent = (std::int64_t{1} << 31) - 1024;

// Whether every fourth scale of a row starts on four bytes, so that they can be loaded at once.
inline bool scales_in_words(const std::uint8_t* scales, const ScaleIndex& index) {
  return (index.layout == ScaleLayout::swizzled || index.blocks % 4 == 0) && starts_on(scales, 4);
}

// Bytes from four scales of a row to the next four.
inline int word_step(const ScaleIndex& index) {
  return index.layout == ScaleLayout::swizzled ? ScaleIndex::tile_bytes : ScaleIndex::tile_blocks;
}

// Whether a product can decode codes under such scales: it counts them in 32 bits.
inline bool are_scales_to_decode(const std::uint8_t* scales, const ScaleIndex& index,
                                 std::int64_t batch) {
  return scales_in_words(scales, index) && batch * index.size() < std::int64_t{1} << 32;
}

constexpr int bytes_of(CoreElement element) { return element == CoreElement::bfloat16 ? 2 : 1; }

// Whether a product can make rows of codes ready itself while it is under way: it has code for
// E4M3 under powers of two.
constexpr bool is_made_under_way(Scheme scheme) {
  return visit(scheme, [](auto type) {
    using S = decltype(type);
    return std::is_same_v<typename S::Format, E4M3> &&
           std::is_same_v<typename S::ScaleFormat, E8M0>;
  });
}

// Words of working memory that a kernel ahead of a product sets to zeros.
struct ZeroedWords {
  std::uint32_t* data = nullptr;
  int count = 0;
};

// The first rows of an operand in MXFP8 E4M3. The product makes the others ready itself, while it
// is under way, and counts them in `progress`, which who makes the first ones sets to zeros.
struct FirstRows {
  static constexpr std::int64_t group = 64;  // the fewest rows that have a counter: a tile's
  // So many of their columns are made by the product at a time, where not all are made ahead.
  static constexpr std::int64_t stretch = 2048;

  std::int64_t rows = 0;  // of whole tiles; 0: all rows are made ahead
  std::uint32_t* progress = nullptr;
  bool are_gated = false;    // who makes the first ones finds the spreads of the others, too
  std::int64_t columns = 0;  // of the first rows, a multiple of `stretch`; 0: all

  // How many stretches there are in a row behind its first columns.
  static constexpr std::int64_t stretches(std::int64_t columns, std::int64_t all_columns) {
    return columns == 0 ? 0 : ceil_div(all_columns - columns, stretch);
  }
  // Of an operand of so many rows and columns.
  static constexpr std::int64_t counters(std::int64_t rows, std::int64_t columns,
                                         const Shape& shape) {
    return 1 + ceil_div(shape.rows, group) +
           ceil_div(rows, group) * stretches(columns, shape.columns);
  }
  constexpr std::int64_t counters(const Shape& shape) const {
    return counters(rows, columns, shape);
  }
};

// What the other rows are made from.
struct LateSource {
  static constexpr std::int64_t most_folded_codes = std::int64_t{1} << 31;

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

// Whether rows of an output start and end on 16 bytes, the pieces that kernels for Hopper store.
inline bool has_rows_of_pieces(const Buffer& out) {
  constexpr int piece = 16;
  const auto size = static_cast<std::int64_t>(size_of(out.dtype));
  const Shape& shape = out.shape;
  return rows_start_on(out.data, shape.columns * size, piece) &&
         (shape.rows == 1 || out.row_stride * size % piece == 0) &&
         (shape.batch == 1 || out.batch_stride * size % piece == 0) &&
         (shape.rows == 1 || out.row_stride >= shape.columns);
}

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
