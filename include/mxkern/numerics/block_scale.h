// mxkern/numerics/block_scale.h: the scale of one block of any scheme, poisoned blocks included.
#pragma once

#include <cstdint>

#include "mxkern/numerics/scale_rule.h"
#include "mxkern/numerics/scheme.h"
#include "mxkern/numerics/tensor_scale.h"

namespace mxkern {

// The scale of a block whose largest magnitude has the float32 bits `amax`: what is not finite has
// the largest bits, so `amax` also says whether a NaN or an Inf poisons the block. The rule is for
// E8M0 scales, the tensor scale for schemes that have one. A poisoned block has the NaN byte, and
// its codes are Format::poison_code whatever the multiplier.
template <class S>
MXKERN_HOST_DEVICE constexpr BlockScale block_scale(std::uint32_t amax, const E8M0Rule& rule,
                                                    const TensorScale& tensor) {
  if (!float32::is_finite(amax)) return {S::ScaleFormat::nan_byte, 0.0f};
  using Format = typename S::Format;
  if constexpr (S::has_tensor_scale) {
    return nvfp4_block_scale(float_of(amax), tensor);
  } else if constexpr (S::ScaleFormat::is_power_of_two) {
    const auto byte = static_cast<std::uint8_t>(rule.bytes(amax));
    return {byte, E8M0::reciprocal(byte)};
  } else {
    const float ratio = float_of(amax) * (1.0f / Format::max_value);
    const std::uint8_t byte = encode<typename S::ScaleFormat::Element>(ratio);
    return {byte, TensorScale::divide_capped(1.0f, S::ScaleFormat::decode(byte))};
  }
}

template <class S>
MXKERN_HOST_DEVICE constexpr BlockScale block_scale(std::uint32_t amax, ScaleRule rule,
                                                    const TensorScale& tensor) {
  return block_scale<S>(amax, E8M0Rule::of<typename S::Format>(rule), tensor);
}

// The value of an element: the exact product of code and block scale; with a tensor scale times the
// tensor's decode multiplier, rounded once. Every NaN is the same one.
template <class S>
MXKERN_HOST_DEVICE constexpr float element_value(float element, float scale, float tensor_scale) {
  if constexpr (S::has_tensor_scale) return with_one_nan(element * scale * tensor_scale);
  return with_one_nan(element * scale);
}

static_assert(block_scale<MxFp8E4M3>(bits_of(1.0f), ScaleRule::floor, {}).byte == 119);
static_assert(block_scale<NvFp4>(float32::infinity_bits, ScaleRule::rceil, {}).byte == 0x7F);

}  // namespace mxkern
