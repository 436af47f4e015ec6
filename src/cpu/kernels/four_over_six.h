// cpu/kernels/four_over_six.h: NVFP4's choice, per block, between two scales.
// Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/kernels/block_scales.h"
#include "cpu/kernels/lanes_memory.h"
#include "mxkern/numerics/tensor_scale.h"

namespace mxkern::cpu {
namespace {

// value * factor - subtrahend, rounded once.
[[gnu::always_inline]] inline FloatLanes fused_multiply_subtract(FloatLanes value, float factor,
                                                                 FloatLanes subtrahend) {
#if defined(__AVX512F__)
  return FloatLanes(_mm512_fmsub_ps(__m512(value), _mm512_set1_ps(factor), __m512(subtrahend)));
#elif defined(__FMA__)
  return FloatLanes(_mm256_fmsub_ps(__m256(value), _mm256_set1_ps(factor), __m256(subtrahend)));
#else
  for (int i = 0; i < lane_count; ++i) {
    value[i] = __builtin_fmaf(value[i], factor, -subtrahend[i]);
  }
  return value;
#endif
}

// The squared error of `count` elements of one block under a candidate, added to sum in order.
template <class S, class T>
[[gnu::always_inline]] inline float add_squared_errors(float sum, const T* x, int count,
                                                       BlockScale scale,
                                                       const TensorScale& tensor) {
  using Format = typename S::Format;
  // Every lane of the differences is rounded like one element's; only the sum is sequential.
  T values[S::block] = {};
  float errors[S::block];
  copy_elements(values, x, count);
  const float block = UE4M3::decode(scale.byte);
  for (int i = 0; i < S::block; i += lane_count) {
    const FloatLanes value = load_lanes(values + i);
    const BitLanes code = encode_lanes<Format>(value * scale.multiplier);
    const FloatLanes decoded = decode_lanes<Format>(code) * block;
    store_vector(errors + i, fused_multiply_subtract(value, tensor.encode, decoded));
  }
  for (int i = 0; i < count; ++i) sum = __builtin_fmaf(errors[i], errors[i], sum);
  return sum;
}

// Replaces the scales of a chunk by the better of the two candidates: the one for 4 only where its
// error is strictly smaller. Errors are those of rounding to nearest, also where codes will be
// rounded stochastically: a choice that saw the random bits would bias the codes' mean.
template <class S, class T>
[[gnu::noinline]] void choose_four_or_six(const T* x, std::int64_t x_stride, std::int64_t lines,
                                          std::int64_t elements, TensorScale tensor,
                                          ChunkScales& chunk) {
  for (std::int64_t b = 0; b * S::block < elements; ++b) {
    if (!float32::is_finite(chunk.amax[b])) continue;
    const FourOverSix candidates = nvfp4_four_over_six(float_of(chunk.amax[b]), tensor);
    const int count = static_cast<int>(lower_of<std::int64_t>(S::block, elements - b * S::block));
    float six = 0.0f;
    float four = 0.0f;
    for (std::int64_t line = 0; line < lines; ++line) {
      const T* block = x + line * x_stride + b * S::block;
      six = add_squared_errors<S>(six, block, count, candidates.six, tensor);
      four = add_squared_errors<S>(four, block, count, candidates.four, tensor);
    }
    const BlockScale chosen = four < six ? candidates.four : candidates.six;
    chunk.bytes[b] = chosen.byte;
    chunk.multipliers[b] = chosen.multiplier;
  }
}

}  // namespace
}  // namespace mxkern::cpu
