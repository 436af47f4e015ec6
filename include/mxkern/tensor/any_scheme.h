// mxkern/tensor/any_scheme.h: a scheme of the user's own: element, blocks, scales.
#pragma once

#include <cstdint>

#include "mxkern/core/buffer.h"
#include "mxkern/numerics/any_format.h"
#include "mxkern/numerics/any_scale.h"
#include "mxkern/numerics/visit.h"
#include "mxkern/tensor/scale_layout.h"

namespace mxkern {

// What has a float32 decode multiplier beside the block scales: nothing, the tensor, or each row.
enum class TensorScales : std::uint8_t { none, tensor, row };

// Elements of a block of block_rows x block_columns share a scale. Blocks do not straddle matrices.
// block_columns 0 is the whole row; with block_rows 0 too, the whole tensor, all of its matrices.
struct AnyScheme {
  AnyFormat element;
  AnyScaleFormat scale;
  std::int64_t block_rows = 1;
  std::int64_t block_columns = 32;
  TensorScales tensor_scales = TensorScales::none;

  friend constexpr bool operator==(const AnyScheme&, const AnyScheme&) = default;

  // The run-time twin of a compiled scheme.
  static constexpr AnyScheme of(Scheme scheme) {
    return visit(scheme, [](auto type) {
      using S = decltype(type);
      AnyScheme made;
      made.element = AnyFormat::of<typename S::Format>();
      if constexpr (!S::ScaleFormat::is_power_of_two) {
        using Element = typename S::ScaleFormat::Element;
        made.scale = {AnyScaleKind::magnitude, Element::exponent_bits, Element::mantissa_bits};
      }
      made.block_columns = S::block;
      made.tensor_scales = S::has_tensor_scale ? TensorScales::tensor : TensorScales::none;
      return made;
    });
  }

  MXKERN_HOST_DEVICE constexpr bool is_whole_tensor() const { return block_rows == 0; }
  MXKERN_HOST_DEVICE constexpr bool has_tensor_scale() const {
    return tensor_scales != TensorScales::none;
  }
  // Whether bfloat16 holds every decoded value: elements of 8 significant bits at most under powers
  // of two. Values below 2^-126 are rounded to its subnormal numbers.
  MXKERN_HOST_DEVICE constexpr bool is_exact_in_bfloat16() const {
    const int significant = element.is_integer && element.is_signed ? element.width() - 1
                            : element.is_all_subnormal()            ? element.mantissa_bits
                                                                    : element.mantissa_bits + 1;
    return scale.kind == AnyScaleKind::power && !has_tensor_scale() && significant <= 8;
  }
  // What an element and its block scale reach together: what a tensor's amax becomes.
  MXKERN_HOST_DEVICE constexpr float largest() const {
    return element.max_value() * scale.max_value();
  }

  // Blocks of one matrix of a tensor of that shape, down and across.
  MXKERN_HOST_DEVICE constexpr std::int64_t blocks_down(const Shape& shape) const {
    return is_whole_tensor() ? 1 : ceil_div(shape.rows, block_rows);
  }
  MXKERN_HOST_DEVICE constexpr std::int64_t blocks_across(const Shape& shape) const {
    return block_columns == 0 ? 1 : ceil_div(shape.columns, block_columns);
  }
  // Of one matrix. Blocks of one row are laid out as ScaleLayout says, others in rows.
  MXKERN_HOST_DEVICE constexpr ScaleIndex scale_index(const Shape& shape,
                                                      ScaleLayout layout) const {
    return {blocks_down(shape), blocks_across(shape), layout};
  }

  // Bytes of the codes of a row. Codes that are packed are a stream of bits, the lowest first,
  // padded with zero codes to a whole block and then to a byte.
  MXKERN_HOST_DEVICE constexpr std::int64_t code_row_bytes(std::int64_t columns) const {
    const int bits = element.stored_bits();
    if (bits >= 8) return columns * (bits / 8);
    const std::int64_t padded = block_columns == 0 ? columns : round_up(columns, block_columns);
    return ceil_div(padded * bits, 8);
  }
  // Scales of the whole tensor, in bytes.
  MXKERN_HOST_DEVICE constexpr std::int64_t scale_bytes(const Shape& shape,
                                                        ScaleLayout layout) const {
    const std::int64_t matrices = is_whole_tensor() ? 1 : shape.batch;
    return matrices * scale_index(shape, layout).size() * (scale.stored_bits() / 8);
  }
  MXKERN_HOST_DEVICE constexpr std::int64_t tensor_scale_count(const Shape& shape) const {
    if (tensor_scales == TensorScales::row) return shape.batch * shape.rows;
    return has_tensor_scale() ? 1 : 0;
  }
};

}  // namespace mxkern
