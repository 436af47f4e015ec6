// cuda/fold.h: block-scaled rows as 8-bit floats under one power of two a row, for tensor cores.
#pragma once

#include <cstdint>

#include "cuda/row_scaled.h"
#include "mxkern/core/device.h"
#include "mxkern/kernels/follows.h"
#include "mxkern/numerics/fold.h"
#include "mxkern/quantize.h"
#include "mxkern/tensor/block_scaled.h"

namespace mxkern::cuda {

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

// What fold and quantize_folded leave in `memory`, which has folded_layout(shape).bytes bytes.
inline RowScaled folded_view(Scheme scheme, const Shape& shape, void* memory) {
  const RowScaledLayout layout = folded_layout(shape);
  auto* bytes = static_cast<std::uint8_t*>(memory);
  RowScaled view = {fold_facts(scheme).element,
                    bytes,
                    shape.batch,
                    shape.rows,
                    shape.columns,
                    layout.row_bytes,
                    layout.batch_bytes,
                    reinterpret_cast<std::int32_t*>(bytes + layout.exponents),
                    bytes + layout.spreads};
  return view;
}

// Folds q into `memory`. The exponent of a row is that of its largest scale less the base shift;
// its spread says how far below it the smallest scale of a block lies that is not all zeros, 255
// for 255 and more. A block with a NaN scale becomes NaN and does not count for either. Of one
// matrix it may be the first rows only. Who asks for no spreads may find none.
void fold(const char* function, const BlockScaled& q, void* memory, Stream stream,
          kernels::Follows follows = kernels::Follows::behind, const ZeroedWords& zeroed = {},
          const FirstRows& first = {}, bool finds_spreads = true);

// An operand that is folded in a call, as fold takes it.
struct FoldTask {
  const BlockScaled* operand;
  void* memory;
  FirstRows first;
};

// Folds both operands of a product by one kernel, where it can: then it returns true, and both are
// as two calls of fold leave them. But of a spread within its limit it only finds that it is.
bool fold_both(const char* function, const FoldTask& a, const FoldTask& b, Stream stream,
               const ZeroedWords& zeroed, bool finds_spreads);

// quantize (rounded to nearest) and fold in one reading of x: the same bytes as one after the
// other. codes, where not null, is left what quantize leaves there.
void quantize_folded(const char* function, const Buffer& x, Scheme scheme, ScaleRule rule,
                     void* memory, const BlockScaled* codes, Stream stream);

}  // namespace mxkern::cuda
