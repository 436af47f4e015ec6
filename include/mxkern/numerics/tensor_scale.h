// mxkern/numerics/tensor_scale.h: the two levels of NVFP4, a float32 a tensor and a UE4M3 a block.
// Source: NVFP4 as Transformer Engine implements it; the order of operations is part of the rule.
#pragma once

#include <cstdint>
#include <iterator>

#include "mxkern/core/math.h"
#include "mxkern/numerics/codec.h"
#include "mxkern/numerics/scale_format.h"

namespace mxkern {

// The largest magnitude that an element and its block scale reach together: 6 * 448.
inline constexpr float nvfp4_largest = E2M1::max_value * E4M3::max_value;

struct TensorScale {
  float encode;  // S_enc: what the tensor is multiplied with
  float decode;  // S_dec: 1 / S_enc
  float stored;  // the decode multiplier that goes with the codes

  // From the tensor's largest finite magnitude, or a calibrated one; 0 stands for "all zero".
  MXKERN_HOST_DEVICE static constexpr TensorScale from_amax(float amax) {
    if (amax == 0.0f) return {1.0f, 1.0f, 1.0f};
    return from_encode(divide_capped(nvfp4_largest, amax), amax / nvfp4_largest);
  }

  // From a decode multiplier that is already fixed: it is stored as it is, but for the sign of 0.
  MXKERN_HOST_DEVICE static constexpr TensorScale from_decode_multiplier(float multiplier) {
    const float positive = multiplier + 0.0f;  // -0 divides to -Inf
    return from_encode(divide_capped(1.0f, positive), positive);
  }

  // numerator / denominator for a denominator >= 0, at most the largest float32.
  MXKERN_HOST_DEVICE static constexpr float divide_capped(float numerator, float denominator) {
    return lower_of(numerator / denominator, float32::largest());
  }

 private:
  MXKERN_HOST_DEVICE static constexpr TensorScale from_encode(float encode, float stored) {
    return {encode, 1.0f / encode, stored};
  }
};

// A block's scale byte and what its elements are multiplied with before they are encoded.
struct BlockScale {
  std::uint8_t byte;
  float multiplier;
};

// inv_b: what elements under the block scale `byte` are multiplied with.
MXKERN_HOST_DEVICE constexpr float nvfp4_multiplier(std::uint8_t byte, const TensorScale& tensor) {
  return TensorScale::divide_capped(1.0f, UE4M3::decode(byte) * tensor.decode);
}

// The scale of a block whose largest magnitude is `amax`, which is finite.
MXKERN_HOST_DEVICE constexpr BlockScale nvfp4_block_scale(float amax, const TensorScale& tensor) {
  const float ratio = amax * (tensor.encode * (1.0f / E2M1::max_value));
  const std::uint8_t byte = encode<E4M3>(lower_of(ratio, float32::largest()));
  return {byte, nvfp4_multiplier(byte, tensor)};
}

// The two candidates of 4over6: the block's largest magnitude becomes code 6, or code 4.
struct FourOverSix {
  BlockScale six;
  BlockScale four;
};

MXKERN_HOST_DEVICE constexpr FourOverSix nvfp4_four_over_six(float amax,
                                                             const TensorScale& tensor) {
  const float base = lower_of(amax / E2M1::max_value * tensor.encode, E4M3::max_value);
  const std::uint8_t six = encode<E4M3>(base);
  const std::uint8_t four = encode<E4M3>(1.5f * base);
  return {{six, nvfp4_multiplier(six, tensor)}, {four, nvfp4_multiplier(four, tensor)}};
}

// What 4over6 sums of a block's elements to compare two scales: squared errors, or absolute ones.
enum class BlockError : std::uint8_t { mse, mae };

inline constexpr BlockError all_block_errors[] = {BlockError::mse, BlockError::mae};

constexpr const char* name_of(BlockError error) {
  switch (error) {
    case BlockError::mse: return "mse";
    case BlockError::mae: return "mae";
  }
  return "unknown";
}

// Whether errors are summed as they are, without their signs, instead of their squares.
MXKERN_HOST_DEVICE constexpr bool is_of_magnitudes(BlockError error) {
  return error == BlockError::mae;
}
static_assert(std::size(all_block_errors) == 2, "one of two: who asks is_of_magnitudes knows both");

// Adds the error of one element to `sum`, in units of the encoded tensor so that no square
// overflows. The fused operations are spelled out: every build rounds in the same places. A block
// (or a tile, row by row) sums its elements in order. Not constexpr: clang has no constant fmaf.
MXKERN_HOST_DEVICE float nvfp4_add_error(BlockError kind, float sum, float value, std::uint8_t code,
                                         std::uint8_t scale, const TensorScale& tensor) {
  const float decoded = decode<E2M1>(code) * UE4M3::decode(scale);
  const float error = __builtin_fmaf(value, tensor.encode, -decoded);
  if (is_of_magnitudes(kind)) return sum + float_of(bits_of(error) & float32::magnitude_mask);
  return __builtin_fmaf(error, error, sum);
}

static_assert(TensorScale::from_amax(2688.0f).stored == 1.0f);
static_assert(nvfp4_block_scale(6.0f, TensorScale::from_amax(2688.0f)).byte == encode<E4M3>(1.0f));

}  // namespace mxkern
