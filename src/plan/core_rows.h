// plan/core_rows.h: rows as tensor cores take them: their elements, how they lie in working memory,
// and which of them a product makes ready itself.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mxkern/core/math.h"
#include "mxkern/numerics/fold.h"
#include "mxkern/numerics/visit.h"
#include "mxkern/tensor/planned_operand.h"
#include "tuning/h200.h"

namespace mxkern::cuda {

enum class CoreElement : std::uint8_t { e4m3, e5m2, bfloat16 };

// Rows, and columns, of what kernels count in 31 bits, with room for the tile that begins last: the
// copy engine's coordinates are such.
inline constexpr std::int64_t most_extent = (std::int64_t{1} << 31) - 1024;

constexpr int bytes_of(CoreElement element) { return element == CoreElement::bfloat16 ? 2 : 1; }

// What folding does to a scheme. Within `spread_limit` octaves between the largest and the smallest
// scale of a row an element loses at most 2^-10 times the power of two of the largest element that
// its block can hold, and nothing where it is exact; beyond, the loss doubles with each octave.
struct FoldFacts {
  bool can_fold = false;  // not for MXINT8 and NVFP4, whose values do not fit into 8-bit floats
  CoreElement element = CoreElement::e4m3;
  int base_shift = 0;    // octaves that elements are raised before they are lowered
  int spread_limit = 0;  // octaves
  bool is_exact = false;
};

constexpr FoldFacts fold_facts(Scheme scheme) {
  return visit(scheme, [](auto type) -> FoldFacts {
    using S = decltype(type);
    if constexpr (scheme_can_fold<S>) {
      using F = Fold<typename S::Format>;
      const bool to_e4m3 = F::Target::mantissa_bits == E4M3::mantissa_bits;
      return {true, to_e4m3 ? CoreElement::e4m3 : CoreElement::e5m2, F::base_shift, F::spread_limit,
              F::is_exact};
    } else {
      return {};
    }
  });
}

// How a row-scaled matrix lies in one piece of memory that starts on 256 bytes: the elements, then,
// each on a multiple of 256 bytes, the exponents and the spreads of the rows of all matrices.
struct RowScaledLayout {
  std::int64_t row_bytes;  // a multiple of 128
  std::int64_t part_bytes;
  std::int64_t batch_bytes;
  std::int64_t exponents;  // where they start
  std::int64_t spreads;    // where they start
  std::int64_t bytes;      // of everything
};

constexpr RowScaledLayout folded_layout(const Shape& shape) {
  const std::int64_t row_bytes = round_up(shape.columns, 128);
  const std::int64_t rows = shape.batch * shape.rows;
  const std::int64_t exponents = round_up(rows * row_bytes, 256);
  const std::int64_t spreads = exponents + round_up(rows * std::int64_t{sizeof(std::int32_t)}, 256);
  return {row_bytes, row_bytes, shape.rows * row_bytes,
          exponents, spreads,   spreads + round_up(rows, 256)};
}

// How many bfloat16 an element takes: their sum is the element.
constexpr int expanded_parts(DType dtype) {
  return dtype == DType::bfloat16 ? 1 : dtype == DType::float16 ? 2 : 3;
}

// Whether the operand is taken as it lies: bfloat16 rows that start and end on 16 bytes. (Memory
// may end with the last row, and an asynchronous copy of fewer bytes counts as a read of 16.)
constexpr bool is_expanded(const PlannedOperand& operand) {
  return operand.is_plain && operand.plain.dtype == DType::bfloat16 &&
         starts_on_16(operand.plain) && operand.shape.columns % 8 == 0;
}

constexpr int parts_of(const PlannedOperand& operand) {
  return operand.is_plain ? expanded_parts(operand.plain.dtype) : 1;
}

// Rows under scales that are floats and of 16-bit elements need no power of two of their own.
constexpr bool has_exponents(const PlannedOperand& operand) {
  return operand.is_plain ? operand.plain.dtype == DType::float32
                          : facts_of(operand.scheme).scales_are_powers;
}

// Of an operand in any form, as its codes and scales or plain elements say. Everything is 0 where
// the operand is taken as it lies. Spreads are not part of it.
constexpr RowScaledLayout expanded_layout(const PlannedOperand& operand) {
  if (is_expanded(operand)) return {};
  const Shape& shape = operand.shape;
  const int parts = parts_of(operand);
  const std::int64_t part_bytes = round_up(shape.columns * 2, 128);
  const std::int64_t row_bytes = part_bytes * parts;
  const std::int64_t rows = shape.batch * shape.rows;
  const std::int64_t exponents = round_up(rows * row_bytes, 256);
  const std::int64_t exponent_bytes =
      has_exponents(operand) ? round_up(rows * std::int64_t{sizeof(std::int32_t)}, 256) : 0;
  const std::int64_t bytes = exponents + exponent_bytes;
  return {row_bytes, part_bytes, shape.rows * row_bytes, exponents, bytes, bytes};
}

// Whether every fourth scale of a row starts on four bytes, so that they can be loaded at once.
constexpr bool scales_in_words(int alignment, const ScaleIndex& index) {
  return (index.layout == ScaleLayout::swizzled || index.blocks % 4 == 0) && alignment >= 4;
}

// Whether a product can decode codes under such scales: it counts them in 32 bits.
constexpr bool are_scales_to_decode(int alignment, const ScaleIndex& index, std::int64_t batch) {
  return scales_in_words(alignment, index) && batch * index.size() < std::int64_t{1} << 32;
}

// Whether a product can make rows of codes ready itself while it is under way: it has code for
// E4M3 under powers of two.
constexpr bool is_made_under_way(Scheme scheme) {
  return visit(scheme, []<class S>(S) {
    return std::is_same_v<typename S::Format, E4M3> &&
           std::is_same_v<typename S::ScaleFormat, E8M0>;
  });
}

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

// The most codes of an operand whose folded rows a product makes itself.
inline constexpr std::int64_t most_late_codes = std::int64_t{1} << 31;

// Whether a product can expand or fold rows of q itself: from codes and scales in whole words, of
// rows that are long beside what each of them takes.
constexpr bool can_be_late(const PlannedOperand& q) {
  return !q.is_plain && is_made_under_way(q.scheme) && q.shape.batch == 1 &&
         q.shape.columns % 128 == 0 && q.shape.columns >= tuning::h200::late::least_columns &&
         q.alignment >= 16 && q.scale_alignment >= 4;
}

// Whether rows of an output start and end on 16 bytes, the pieces that kernels for Hopper store.
constexpr bool has_rows_of_pieces(const PlannedTensor& out) {
  const auto size = static_cast<std::int64_t>(size_of(out.dtype));
  return starts_on_16(out) && out.shape.columns * size % 16 == 0 &&
         (out.shape.rows == 1 || out.row_stride >= out.shape.columns);
}

}  // namespace mxkern::cuda
