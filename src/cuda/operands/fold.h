// cuda/operands/fold.h: block-scaled rows as 8-bit floats under one power of two a row, for tensor
// cores.
#pragma once

#include <cstdint>

#include "cuda/operands/row_scaled.h"
#include "mxkern/core/device.h"
#include "mxkern/kernels/device/follows.h"
#include "mxkern/quantize.h"
#include "mxkern/tensor/block_scaled.h"

namespace mxkern::cuda {

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
