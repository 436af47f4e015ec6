// mxkern/kernels/quantize_octet.cuh: what every quantizing kernel does with eight elements.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mxkern/core/philox.h"
#include "mxkern/kernels/block_amax.cuh"
#include "mxkern/numerics/block_scale.h"
#include "mxkern/numerics/hadamard.h"
#include "mxkern/numerics/rounding.h"

namespace mxkern::kernels {

// The options of a quantizing kernel that are not template parameters.
struct OctetOptions {
  ScaleRule rule;
  bool four_over_six;
  std::uint64_t seed;
  std::uint64_t offset;
  const float* amax;          // NVFP4: one of these two; the quantizers below read it
  const float* tensor_scale;  // NVFP4
  int hadamard_size;          // 0: no transform
  SignMask hadamard_signs;
};

// The options as a kernel for plain quantization knows them: no transform, no choice of scales.
// Without their code it has fewer registers and runs faster.
template <bool Plain>
__device__ __forceinline__ OctetOptions known_options(const OctetOptions& options) {
  OctetOptions known = options;
  if constexpr (Plain) {
    known.hadamard_size = 0;
    known.four_over_six = false;
  }
  return known;
}

inline bool is_plain(const OctetOptions& options) {
  return options.hadamard_size == 0 && !options.four_over_six;
}

// What stands for the multiplier of a poisoned block; a real one is never negative.
inline constexpr float poisoned_multiplier = -1.0f;

__device__ __forceinline__ TensorScale read_tensor_scale(const OctetOptions& options) {
  if (options.tensor_scale != nullptr) {
    return TensorScale::from_decode_multiplier(*options.tensor_scale);
  }
  return TensorScale::from_amax(*options.amax);
}

// Random words for eight elements whose logical indices start at `index` and step by `stride`.
__device__ __forceinline__ void octet_words(const OctetOptions& options, std::uint64_t index,
                                            std::uint64_t stride, std::uint32_t (&words)[8]) {
  if (stride == 1 && index % 4 == 0) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const Philox4 four = philox4x32(options.seed, index / 4 + i, options.offset);
#pragma unroll
      for (int lane = 0; lane < 4; ++lane) words[4 * i + lane] = four.lane[lane];
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const std::uint64_t own = index + i * stride;
    const Philox4 four = philox4x32(options.seed, own / 4, options.offset);
    const auto lane = static_cast<unsigned>(own % 4);
    words[i] = lane == 0   ? four.lane[0]
               : lane == 1 ? four.lane[1]
               : lane == 2 ? four.lane[2]
                           : four.lane[3];
  }
}

// block_scale, with conversion instructions for the UE4M3 byte where there are some.
template <class S>
__device__ __forceinline__ BlockScale fast_block_scale(std::uint32_t amax, ScaleRule rule,
                                                       const TensorScale& tensor) {
#if MXKERN_HAS_CVT_E4M3
  if constexpr (S::has_tensor_scale) {
    const float ratio = __fmul_rn(float_of(amax), __fmul_rn(tensor.encode, 1.0f / 6.0f));
    const std::uint32_t byte = ptx::convert_pair<E4M3>(ratio, 0.0f) & 0xFFu;
    const float decoded = __fmul_rn(ptx::widen_pair<E4M3>(byte).x, tensor.decode);
    const BlockScale scale = {static_cast<std::uint8_t>(byte),
                              lower_of(__frcp_rn(decoded), float32::largest())};
    return float32::is_finite(amax) ? scale : BlockScale{S::ScaleFormat::nan_byte, 0.0f};
  }
#endif
  return block_scale<S>(amax, rule, tensor);
}

// Codes of eight values under the multiplier of their block, packed. `amax` is at least the largest
// magnitude of the eight.
template <class S, Rounding R>
__device__ __forceinline__ Octet quantize_octet(const float (&v)[8], float amax, float multiplier,
                                                const std::uint32_t (&words)[8]) {
  using Format = typename S::Format;
  const float factor =
      R == Rounding::nearest ? __fmul_rn(multiplier, octet_scale<Format>) : multiplier;
  float scaled[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) scaled[i] = __fmul_rn(v[i], factor);
  Octet octet;
  if constexpr (R == Rounding::nearest) {
    saturate_octet<Format>(scaled, __fmul_rn(amax, factor));
    octet = encode_octet<Format>(scaled);
  } else {
    octet = encode_stochastic_octet<Format>(scaled, words);
  }
  return multiplier < 0.0f ? poison_octet<Format> : octet;
}

// The same from the elements as they lie in memory, in the fewest operations that there are.
template <class S, Rounding R, class T>
__device__ __forceinline__ Octet quantize_octet(const RawOctet<T>& raw, float amax,
                                                float multiplier, const std::uint32_t (&words)[8]) {
  using Format = typename S::Format;
  constexpr bool in_bfloat16 = std::is_same_v<T, bfloat16> && Format::bits == 4 &&
                               !S::has_tensor_scale && R == Rounding::nearest &&
                               !MXKERN_HAS_CVT_E2M1;
  if constexpr (in_bfloat16) {
    const Octet octet = encode_bfloat16_octet(raw.word, multiplier, __fmul_rn(amax, multiplier));
    return multiplier < 0.0f ? poison_octet<Format> : octet;
  } else {
    float v[8];
    unpack(raw, v);
    return quantize_octet<S, R>(v, amax, multiplier, words);
  }
}

// Adds the squared errors of an octet, in order.
__device__ __forceinline__ float add_octet_errors(float sum, const float (&v)[8], Octet octet,
                                                  std::uint8_t scale, const TensorScale& tensor) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    sum = nvfp4_add_squared_error(sum, v[i], static_cast<std::uint8_t>(octet >> (4 * i) & 0xFu),
                                  scale, tensor);
  }
  return sum;
}

// The error of a block of two octets in adjacent lanes, summed in order; both lanes get it.
__device__ __forceinline__ float pair_error(const float (&v)[8], Octet octet, std::uint8_t scale,
                                            const TensorScale& tensor) {
  const float first = add_octet_errors(0.0f, v, octet, scale, tensor);
  const float before = __shfl_xor_sync(full_warp, first, 1);
  const float both = add_octet_errors(before, v, octet, scale, tensor);
  return __shfl_sync(full_warp, both, static_cast<int>(threadIdx.x) | 1);
}

// 4over6 for a block of two octets in adjacent lanes: sets the codes of the better scale and
// returns its byte. A poisoned block keeps its codes. Errors are those of rounding to nearest, also
// where codes are rounded stochastically: a choice that saw the random bits would bias their mean.
template <class S, Rounding R>
__device__ __forceinline__ std::uint8_t better_of_two(const float (&v)[8], std::uint32_t amax,
                                                      const TensorScale& tensor,
                                                      const std::uint32_t (&words)[8],
                                                      Octet& codes) {
  const FourOverSix scales = nvfp4_four_over_six(float_of(amax), tensor);
  constexpr Rounding nearest = Rounding::nearest;
  const Octet six = quantize_octet<S, nearest>(v, float_of(amax), scales.six.multiplier, words);
  const Octet four = quantize_octet<S, nearest>(v, float_of(amax), scales.four.multiplier, words);
  const float error_of_six = pair_error(v, six, scales.six.byte, tensor);
  const float error_of_four = pair_error(v, four, scales.four.byte, tensor);
  if (!float32::is_finite(amax)) return S::ScaleFormat::nan_byte;
  const bool take_four = error_of_four < error_of_six;
  codes = take_four ? four : six;
  if constexpr (R == Rounding::stochastic) {
    const float multiplier = take_four ? scales.four.multiplier : scales.six.multiplier;
    codes = quantize_octet<S, R>(v, float_of(amax), multiplier, words);
  }
  return take_four ? scales.four.byte : scales.six.byte;
}

// The scales of squares that four rows of an octet belong to.
struct SquareScales {
  bool used = false;
  bool fixed = false;  // 4over6 has chosen the bytes already
  std::uint32_t amax[4] = {};
  std::uint32_t bytes[4] = {};

  template <class S>
  __device__ __forceinline__ BlockScale scale(int i, std::uint32_t block_amax,
                                              const TensorScale& tensor) const {
    if (!float32::is_finite(block_amax)) return {S::ScaleFormat::nan_byte, 0.0f};
    const std::uint32_t word = i == 0 ? bytes[0] : i == 1 ? bytes[1] : i == 2 ? bytes[2] : bytes[3];
    const auto byte = static_cast<std::uint8_t>(word);
    return {byte, nvfp4_multiplier(byte, tensor)};
  }
};

// x := (x * sign) H / sqrt(size) for groups that span size / 8 adjacent lanes, rounded to T.
// `lane` is this octet's position in its row: groups are aligned to their size.
template <class T>
__device__ __forceinline__ void hadamard_octet(float (&v)[8], int lane, int size, SignMask signs,
                                               bool inverse) {
  const int position = lane % (size / 8);
  if (!inverse) {
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = flip_sign(v[i], signs.bit(position * 8 + i));
  }
  hadamard_butterflies(v);
  for (int stride = 1; stride < size / 8; stride *= 2) {
    const bool upper = (position & stride) != 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float other = __shfl_xor_sync(full_warp, v[i], stride);
      v[i] = upper ? other - v[i] : v[i] + other;
    }
  }
  const float norm = hadamard_norm(size);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    v[i] = __fmul_rn(v[i], norm);
    if (inverse) v[i] = flip_sign(v[i], signs.bit(position * 8 + i));
  }
  round_octet<T>(v);
}

}  // namespace mxkern::kernels
