// mxkern/tensor/planned_operand.h: what a plan of a product knows of tensors: all but where they
// lie.
#pragma once

#include <cstdint>
#include <variant>

#include "mxkern/core/buffer.h"
#include "mxkern/tensor/prepared_operand.h"

namespace mxkern {

// The largest power of two up to `most`, itself one, that divides an address; null has them all.
inline int alignment_of(const void* address, int most) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address) | static_cast<unsigned>(most);
  return static_cast<int>(bits & (~bits + 1));
}

// A plain tensor. Strides count elements. alignment: of its address, in bytes, a power of two up to
// the default, beyond which nothing differs.
struct PlannedTensor {
  static constexpr int most_aligned = 16;

  DType dtype = DType::float32;
  Shape shape;
  std::int64_t row_stride = 0;
  std::int64_t batch_stride = 0;
  int alignment = most_aligned;

  constexpr PlannedTensor() = default;
  // Densely stored.
  constexpr PlannedTensor(DType type, const Shape& extents)
      : PlannedTensor(Buffer::dense(nullptr, type, extents), most_aligned) {}
  PlannedTensor(const Buffer& x) : PlannedTensor(x, alignment_of(x.data, most_aligned)) {}

  friend constexpr bool operator==(const PlannedTensor&, const PlannedTensor&) = default;

 private:
  constexpr PlannedTensor(const Buffer& x, int aligned)
      : dtype(x.dtype),
        shape(x.shape),
        row_stride(x.row_stride),
        batch_stride(x.batch_stride),
        alignment(aligned) {}
};

// Rows start on multiples of 16 bytes.
constexpr bool starts_on_16(const PlannedTensor& x) {
  return x.alignment % 16 == 0 && strides_are_on_16(x);
}

// An operand of a product: quantized, plain or prepared ahead. Implicit: a view of one becomes it.
struct PlannedOperand {
  static constexpr int most_aligned = 32, most_scales_aligned = 16;

  Shape shape;
  bool is_plain = false;
  // A quantized operand.
  Scheme scheme = Scheme::mxfp8_e4m3;
  ScaleLayout scale_layout = ScaleLayout::row_major;
  PreparedForm form = PreparedForm::source;
  bool has_source = true;        // false: prepared, and its codes and scales were not kept
  int alignment = most_aligned;  // of codes
  int scale_alignment = most_scales_aligned;
  // A plain one; its shape is above.
  PlannedTensor plain;

  constexpr PlannedOperand() = default;
  constexpr PlannedOperand(Scheme kind, const Shape& extents,
                           ScaleLayout layout = ScaleLayout::row_major)
      : shape(extents), scheme(kind), scale_layout(layout) {}
  PlannedOperand(const PlannedTensor& x) : shape(x.shape), is_plain(true), plain(x) {}
  PlannedOperand(const Buffer& x) : PlannedOperand(PlannedTensor(x)) {}
  PlannedOperand(const BlockScaled& q)
      : shape(q.shape),
        scheme(q.scheme),
        scale_layout(q.scale_layout),
        alignment(alignment_of(q.codes, most_aligned)),
        scale_alignment(alignment_of(q.scales, most_scales_aligned)) {}
  PlannedOperand(const PreparedOperand& p) : PlannedOperand(p.source) {
    form = p.form;
    has_source = p.form == PreparedForm::source || p.has_source();
  }
  template <class... Kinds>
  PlannedOperand(const std::variant<Kinds...>& operand)
      : PlannedOperand(std::visit([](const auto& one) { return PlannedOperand(one); }, operand)) {}

  // A quantized operand as prepare_operand makes it.
  constexpr PlannedOperand prepared(PreparedForm as, bool keeps_source = true) const {
    PlannedOperand made = *this;
    made.form = as;
    made.has_source = keeps_source || as == PreparedForm::source;
    return made;
  }

  // The scales of one matrix of a quantized operand.
  constexpr ScaleIndex scale_index() const {
    return {shape.rows, ceil_div(shape.columns, facts_of(scheme).block), scale_layout};
  }

  friend constexpr bool operator==(const PlannedOperand&, const PlannedOperand&) = default;
};

}  // namespace mxkern
