// check/gemm_operand.h: what the operands of gemm have in common, whichever kind they are.
#pragma once

#include <cstdint>
#include <variant>

#include "check/arguments.h"
#include "mxkern/gemm.h"

namespace mxkern {

// The quantized or plain tensor that an operand stands for.
inline const BlockScaled& source_of(const BlockScaled& q) { return q; }
inline const BlockScaled& source_of(const PreparedOperand& prepared) { return prepared.source; }
inline const Buffer& source_of(const Buffer& x) { return x; }

inline const BlockScaled& source_of(const GemmRightOperand& b) {
  return std::visit([](const auto& right) -> const BlockScaled& { return source_of(right); }, b);
}

// Calls visitor with the BlockScaled or the Buffer.
template <class Visitor>
decltype(auto) visit_source(const GemmOperand& a, Visitor&& visitor) {
  return std::visit([&](const auto& left) { return visitor(source_of(left)); }, a);
}

inline Shape shape_of(const GemmOperand& a) {
  return visit_source(a, [](const auto& left) { return left.shape; });
}

// Null where the operand was not prepared.
inline const PreparedOperand* prepared_of(const GemmOperand& a) {
  return std::get_if<PreparedOperand>(&a);
}
inline const PreparedOperand* prepared_of(const GemmRightOperand& b) {
  return std::get_if<PreparedOperand>(&b);
}

// What the CPU reads instead of the source; null where it reads that.
inline const void* panels_of(const GemmRightOperand& b) {
  const PreparedOperand* prepared = prepared_of(b);
  return prepared != nullptr && prepared->form == PreparedForm::panels ? prepared->data : nullptr;
}

// Null for a plain operand.
inline const BlockScaled* quantized_of(const GemmOperand& a) {
  if (const auto* prepared = prepared_of(a)) return &prepared->source;
  return std::get_if<BlockScaled>(&a);
}

// The operand with strides that all mean something, as with_strides of a buffer.
inline GemmOperand with_strides(const GemmOperand& operand) {
  const auto* plain = std::get_if<Buffer>(&operand);
  return plain == nullptr ? operand : GemmOperand(with_strides(*plain));
}

// A right operand as one that may stand on either side.
inline GemmOperand either_side(const GemmRightOperand& b) {
  return std::visit([](const auto& right) { return GemmOperand(right); }, b);
}

// The operand as it was before anything was prepared.
inline GemmOperand as_source(const GemmOperand& operand) {
  return visit_source(operand, [](const auto& source) { return GemmOperand(source); });
}

}  // namespace mxkern
