// mxkern/numerics/any_scale.h: block scales whose format and rule are known at run time.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/numerics/any_codec.h"
#include "mxkern/numerics/scale_format.h"
#include "mxkern/numerics/scale_rule.h"
#include "mxkern/numerics/tensor_scale.h"

namespace mxkern {

// power: 2^(code - bias) in `exponent_bits`, without a zero; all ones is NaN. magnitude: a float
// without a sign. single: a float32.
enum class AnyScaleKind : std::uint8_t { power, magnitude, single };

struct AnyScaleFormat {
  AnyScaleKind kind = AnyScaleKind::power;
  int exponent_bits = 8;
  int mantissa_bits = 0;

  friend constexpr bool operator==(const AnyScaleFormat&, const AnyScaleFormat&) = default;

  // A magnitude's codes. All ones is NaN; with 8 exponent bits, where that would leave numbers
  // beyond float32, specials are IEEE's.
  MXKERN_HOST_DEVICE constexpr AnyFormat magnitude() const {
    return {exponent_bits, mantissa_bits, false, false,
            exponent_bits == 8 ? Specials::ieee : Specials::nan_only};
  }
  MXKERN_HOST_DEVICE constexpr int stored_bits() const {
    if (kind == AnyScaleKind::single) return 32;
    return exponent_bits + mantissa_bits <= 8 ? 8 : 16;
  }
  MXKERN_HOST_DEVICE constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  MXKERN_HOST_DEVICE constexpr std::uint32_t nan_code() const {
    if (kind == AnyScaleKind::single) return float32::nan_bits;
    return (1u << (exponent_bits + mantissa_bits)) - 1u;
  }
  MXKERN_HOST_DEVICE constexpr std::uint32_t max_code() const {
    if (kind == AnyScaleKind::single) return float32::largest_bits;
    return kind == AnyScaleKind::power ? nan_code() - 1u : magnitude().max_code();
  }
  MXKERN_HOST_DEVICE constexpr float decode(std::uint32_t code) const {
    if (kind == AnyScaleKind::single) return float_of(code);
    if (kind == AnyScaleKind::magnitude) return mxkern::decode(magnitude(), code);
    return code >= nan_code() ? float_of(float32::nan_bits)
                              : float32::exp2(static_cast<int>(code) - bias());
  }
  // Of a scheme with a tensor scale: the largest block scale.
  MXKERN_HOST_DEVICE constexpr float max_value() const { return decode(max_code()); }

  constexpr bool is_valid() const {
    switch (kind) {
      case AnyScaleKind::single: return true;
      case AnyScaleKind::power:
        return exponent_bits >= 2 && exponent_bits <= 8 && mantissa_bits == 0;
      case AnyScaleKind::magnitude:
        return exponent_bits >= 1 && exponent_bits <= 8 && mantissa_bits >= 1 &&
               mantissa_bits <= 10 && exponent_bits + mantissa_bits <= 16;
    }
    return false;
  }
};

// How the scale of a block follows from its largest magnitude.
struct AnyScaleOptions {
  ScaleRule rule = ScaleRule::rceil;  // of powers of two; others are rounded to nearest
  // Where not 0, the rule rceil lets amax / max reach this many times the scale before it steps up.
  float threshold = 0.0f;
  // Of a scale and its two neighbours the one with the smallest sum of squared errors, in that
  // order where sums are equal. A float32 scale's neighbours are 7/8 and 9/8 of it.
  bool mse = false;
};

// A block's scale: its code, what elements are multiplied with before they are encoded, and what
// they are multiplied with after they are decoded, the tensor's scale left out.
struct AnyBlockScale {
  std::uint32_t code;
  float multiplier;
  float value;
};

// The numbers of an E8M0 rule for elements of a format.
MXKERN_HOST_DEVICE constexpr E8M0Rule any_scale_rule(const AnyFormat& format,
                                                     const AnyScaleOptions& options) {
  constexpr std::uint32_t any = float32::mantissa_mask;
  const std::uint32_t half = 1u << (float32::mantissa_bits - 1 - format.bits_after_leading());
  const int exponent = format.max_exponent();
  const float threshold = options.threshold == 0.0f ? 1.0f : options.threshold;
  switch (options.rule) {
    case ScaleRule::rceil:
      return {1.0f / (format.max_value() * threshold), any, any >> 1, 0,
              exponent == 0 || threshold > 1.0f};
    case ScaleRule::floor: return {1.0f, 0, 0, exponent, true};
    case ScaleRule::ceil: return {1.0f, any, any, exponent, true};
    case ScaleRule::even: return {1.0f, half, half, exponent, true};
  }
  return {};
}

// From a tensor's largest finite magnitude, as TensorScale::from_amax does for NVFP4.
MXKERN_HOST_DEVICE constexpr TensorScale any_tensor_scale(float largest, float amax) {
  if (amax == 0.0f) return {1.0f, 1.0f, 1.0f};
  const float encode = TensorScale::divide_capped(largest, amax);
  return {encode, 1.0f / encode, amax / largest};
}

// Scales of the blocks of one scheme.
struct AnyScaler {
  AnyScaleFormat format;
  E8M0Rule rule;
  float reciprocal;  // 1 / the elements' largest value
  AnyEncoder<std::uint32_t> encoder;
  bool has_tensor_scale;

  MXKERN_HOST_DEVICE static constexpr AnyScaler of(const AnyFormat& element,
                                                   const AnyScaleFormat& format,
                                                   const AnyScaleOptions& options,
                                                   bool has_tensor_scale) {
    const bool is_magnitude = format.kind == AnyScaleKind::magnitude;
    return {format, any_scale_rule(element, options), 1.0f / element.max_value(),
            AnyEncoder<std::uint32_t>::of(is_magnitude ? format.magnitude() : AnyFormat{}, {}),
            has_tensor_scale};
  }

  // The scale that a code stands for.
  MXKERN_HOST_DEVICE constexpr AnyBlockScale of_code(std::uint32_t code,
                                                     const TensorScale& tensor) const {
    if (code >= format.nan_code() && format.kind != AnyScaleKind::single) return poisoned();
    const float value = format.decode(code);
    if ((bits_of(value) & float32::magnitude_mask) > float32::infinity_bits) return poisoned();
    if (format.kind == AnyScaleKind::power) {
      return {code, float32::exp2(format.bias() - static_cast<int>(code)), value};
    }
    const float whole = has_tensor_scale ? value * tensor.decode : value;
    return {code, TensorScale::divide_capped(1.0f, whole), value};
  }

  // The scale of a block whose largest magnitude has the float32 bits `amax`. The multiplier of a
  // poisoned block is NaN, and with it every code.
  MXKERN_HOST_DEVICE constexpr AnyBlockScale of_amax(std::uint32_t amax,
                                                     const TensorScale& tensor) const {
    if (!float32::is_finite(amax)) return poisoned();
    return of_code(code_of(amax, tensor), tensor);
  }

  MXKERN_HOST_DEVICE constexpr AnyBlockScale poisoned() const {
    const float nan = float_of(float32::nan_bits);
    return {format.nan_code(), nan, nan};
  }

  // A neighbour of a scale: -1 the one below, 1 the one above, or itself where there is none.
  MXKERN_HOST_DEVICE constexpr std::uint32_t neighbour(std::uint32_t code, int side) const {
    if (format.kind == AnyScaleKind::single) {
      const float moved = float_of(code) * (side < 0 ? 0.875f : 1.125f);
      return float32::is_finite(bits_of(moved)) ? bits_of(moved) : code;
    }
    if (side < 0) return code == 0 ? code : code - 1;
    return code >= format.max_code() ? code : code + 1;
  }

  // A magnitude or a float32 before it is rounded to its format.
  MXKERN_HOST_DEVICE constexpr float ratio(std::uint32_t amax, const TensorScale& tensor) const {
    const float factor = has_tensor_scale ? tensor.encode * reciprocal : reciprocal;
    return lower_of(float_of(amax) * factor, float32::largest());
  }

  // The code of the scale, for an amax that is finite.
  MXKERN_HOST_DEVICE constexpr std::uint32_t code_of(std::uint32_t amax,
                                                     const TensorScale& tensor) const {
    if (format.kind == AnyScaleKind::power) {
      const int code = static_cast<int>(rule.bytes(amax)) - E8M0::bias + format.bias();
      const int most = static_cast<int>(format.max_code());
      return static_cast<std::uint32_t>(code < 0 ? 0 : code > most ? most : code);
    }
    return format.kind == AnyScaleKind::single
               ? bits_of(ratio(amax, tensor))
               : encode_any<float>(encoder, ratio(amax, tensor), 0u);
  }
};

// The float32 bits that scales follow from, for a largest magnitude of wider bits: towards zero
// where the rule goes by leading bits, away from it where it rounds up, else the nearest.
MXKERN_HOST_DEVICE constexpr std::uint32_t any_amax(std::uint32_t amax, AnyScaleKind, ScaleRule) {
  return amax;
}
MXKERN_HOST_DEVICE constexpr std::uint32_t any_amax(std::uint64_t amax, AnyScaleKind kind,
                                                    ScaleRule rule) {
  if (amax >= std::uint64_t{0x7FF} << 52) return float32::infinity_bits;
  const double value = float_of(amax);
  std::uint32_t nearest = lower_of(float32::nearest_bits(value), float32::largest_bits);
  if (kind != AnyScaleKind::power) return nearest;
  const bool up = rule == ScaleRule::rceil || rule == ScaleRule::ceil;
  const auto found = static_cast<double>(float_of(nearest));
  if (up && found < value) nearest = lower_of(nearest + 1u, float32::largest_bits);
  if (!up && found > value) --nearest;
  return nearest;
}

}  // namespace mxkern
