// mxkern/tensor/prepared_operand.h: a quantized operand with what a matrix product reads instead of
// its codes, made once ahead.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mxkern/tensor/block_scaled.h"

namespace mxkern {

enum class PreparedForm : std::uint8_t {
  source,      // codes and scales alone
  folded,      // FP8 elements that hold their block scales, for Hopper's FP8 tensor cores
  expanded,    // bfloat16 elements, for the bfloat16 tensor cores of every GPU
  few_tokens,  // codes and scales in the order in which products of few rows read them on a GPU
  panels,      // codes and scales in the order in which vectors of a CPU read them
};

inline constexpr PreparedForm all_prepared_forms[] = {
    PreparedForm::source, PreparedForm::folded, PreparedForm::expanded, PreparedForm::few_tokens,
    PreparedForm::panels};

constexpr const char* name_of(PreparedForm form) {
  switch (form) {
    case PreparedForm::source: return "source";
    case PreparedForm::folded: return "folded";
    case PreparedForm::expanded: return "expanded";
    case PreparedForm::few_tokens: return "few_tokens";
    case PreparedForm::panels: return "panels";
  }
  return "unknown";
}

// A view. `source` says scheme, shape, device and tensor scale; where its codes and scales are null
// they were not kept, and only `data` can be multiplied. `data` is null for PreparedForm::source.
struct PreparedOperand {
  PreparedForm form = PreparedForm::source;
  BlockScaled source;
  void* data = nullptr;
  std::size_t bytes = 0;

  constexpr bool has_source() const { return source.codes != nullptr; }
};

}  // namespace mxkern
