// plan/prepare_both.h: the working memory of both directions of a tensor that are folded on a CUDA
// device.
#pragma once

#include <cstddef>

#include "mxkern/core/math.h"
#include "mxkern/kernels/operands/both_tiles.h"
#include "mxkern/tensor/prepared_operand.h"
#include "plan/core_rows.h"

namespace mxkern::cuda {

// Whether such results can be made in tiles that read x twice, instead of codes and scales first:
// E4M3, of which nobody wants these.
inline bool prepares_in_tiles(const PreparedOperand& rows, const PreparedOperand& columns) {
  const Scheme scheme = rows.source.scheme;
  const FoldFacts facts = fold_facts(scheme);
  return facts.can_fold && facts.element == CoreElement::e4m3 && facts_of(scheme).bits == 8 &&
         !rows.has_source() && !columns.has_source();
}

// In the order that they lie in: words of LineExtremes, then scales.
inline std::size_t both_tiles_bytes(const Shape& shape) {
  const auto tiles = kernels::BothTiles::of(shape);
  return static_cast<std::size_t>((tiles.extreme_words() + tiles.scale_words()) *
                                  std::int64_t{sizeof(std::uint32_t)});
}

}  // namespace mxkern::cuda
