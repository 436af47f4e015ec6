// mxkern/kernels/quantize/octet.cuh: what every quantizing kernel does with eight elements.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mxkern/kernels/quantize/block_scaler.cuh"
#include "mxkern/kernels/quantize/random_words.cuh"
#include "mxkern/numerics/codec_stochastic.cuh"
#include "mxkern/numerics/hadamard.h"
#include "mxkern/numerics/rounding.h"

namespace mxkern::kernels {

// The options of a quantizing kernel that are not template parameters.
struct OctetOptions {
  E8M0Rule rule;
  bool four_over_six;
  BlockError block_error;  // of its choice
  PhiloxKeys keys;
  RandomOffset offset;
  const float* amax;          // NVFP4: one of these two; the quantizers below read it
  const float* tensor_scale;  // NVFP4
  float* found;               // NVFP4, second direction, if not null: where amax is left as well
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

__device__ __forceinline__ TensorScale read_tensor_scale(const OctetOptions& options) {
  if (options.tensor_scale != nullptr) {
    return TensorScale::from_decode_multiplier(*options.tensor_scale);
  }
  return TensorScale::from_amax(*options.amax);
}

// The scaler of a kernel, without a table. NVFP4: reads the tensor's scale.
template <class S>
__device__ __forceinline__ BlockScaler<S> scaler_without_table(const OctetOptions& options,
                                                               int table = 0) {
  if constexpr (S::has_tensor_scale) {
    return {read_tensor_scale(options), table, options.block_error};
  } else {
    return {options.rule};
  }
}

// The scaler of a kernel, or of one of its directions. NVFP4: the first thread of the grid stores
// the tensor's scale to `stored`. Without a table.
template <class S>
__device__ __forceinline__ BlockScaler<S> lone_scaler(const OctetOptions& options, float* stored,
                                                      int table = 0) {
  const BlockScaler<S> scaler = scaler_without_table<S>(options, table);
  if constexpr (S::has_tensor_scale) {
    if ((blockIdx.x | blockIdx.y | blockIdx.z | threadIdx.x) == 0) *stored = scaler.tensor.stored;
  }
  return scaler;
}

// The same with a table, filled; the caller synchronizes.
template <class S>
__device__ __forceinline__ BlockScaler<S> block_scaler(const OctetOptions& options, float* stored,
                                                       int table = 0) {
  const BlockScaler<S> scaler = lone_scaler<S>(options, stored, table);
  if constexpr (S::has_tensor_scale) scaler.fill();
  return scaler;
}

MXKERN_HOST_DEVICE bool same_tensor_scale(const OctetOptions& a, const OctetOptions& b) {
  return a.amax == b.amax && a.tensor_scale == b.tensor_scale;
}

// Whether 4over6 makes the same choice for a square in both directions, if in one.
MXKERN_HOST_DEVICE bool same_choice(const OctetOptions& a, const OctetOptions& b) {
  return same_tensor_scale(a, b) && a.four_over_six == b.four_over_six &&
         a.block_error == b.block_error;
}

// The scaler of a second direction, which costs nothing where the tensor's scale is the same one.
template <class S>
__device__ __forceinline__ BlockScaler<S> other_block_scaler(const OctetOptions& options,
                                                             float* stored,
                                                             const OctetOptions& first_options,
                                                             const BlockScaler<S>& first) {
  if constexpr (S::has_tensor_scale) {
    if (same_tensor_scale(options, first_options)) {
      if ((blockIdx.x | blockIdx.y | blockIdx.z | threadIdx.x) == 0) {
        *stored = first.tensor.stored;
        if (options.found != nullptr) *options.found = *options.amax;
      }
      BlockScaler<S> other = first;
      other.error = options.block_error;
      return other;
    }
  }
  return block_scaler<S>(options, stored, 1);
}

// Whether values of a block can be too large for the lines or conversions that encode them.
template <class S, Rounding R>
__device__ __forceinline__ bool block_saturates(std::uint32_t amax, float multiplier) {
  const float largest = __fmul_rn(float_of(amax), multiplier);
  return R == Rounding::nearest ? needs_saturation<typename S::Format>(largest)
                                : largest > S::Format::max_value;
}

// Codes of eight values under the multiplier of their block, packed. `PoisonedLater`: the caller
// stores those of poisoned blocks again.
template <class S, Rounding R, bool PoisonedLater = false>
__device__ __forceinline__ Octet quantize_octet(const float (&v)[8], float multiplier,
                                                bool saturate, const Philox4& words) {
  using Format = typename S::Format;
  const float factor =
      R == Rounding::nearest ? __fmul_rn(multiplier, octet_scale<Format>) : multiplier;
  float scaled[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) scaled[i] = __fmul_rn(v[i], factor);
  Octet octet;
  if constexpr (R == Rounding::nearest) {
    if (saturate) saturate_octet<Format>(scaled);
    octet = encode_octet<Format>(scaled);
  } else {
    octet = encode_stochastic_octet<Format>(scaled, words, saturate);
  }
  return !PoisonedLater && multiplier < 0.0f ? poison_octet<Format> : octet;
}

// Whether two elements at a time stay exact in bfloat16 up to the rounding.
template <class S, Rounding R, class T>
inline constexpr bool pairs_in_bfloat16 =
    R == Rounding::nearest && !MXKERN_HAS_CVT_E2M1 && S::ScaleFormat::is_power_of_two &&
    is_fp4<typename S::Format> && std::is_same_v<T, bfloat16>;

// Whether elements times the multiplier of their block, a power of two, are exact in bfloat16 as
// far as random words reach.
template <class S, Rounding R, class T>
inline constexpr bool stochastic_in_bfloat16 =
    S::ScaleFormat::is_power_of_two&& R == Rounding::stochastic&& std::is_same_v<T, bfloat16>;

// One of two bfloat16 values times a power of two, as a float32. The multiplier's lower half is 0:
// so is the product's, with nothing of the other value. What is added, 0 and -0, keeps the sign of
// zero; the compiler is not to see that it is constant, as it would put the two together for each
// element. Where registers are short, as in patches, multiplying and unpacking pairs is faster.
__device__ __forceinline__ float scale_half(std::uint32_t pair, int half, float multiplier) {
  const auto two = *reinterpret_cast<const __nv_bfloat162*>(&pair);
  const std::uint32_t factors = bits_of(multiplier), zeros = factors << 16 | 0x80000000u;
  const __nv_bfloat162 product = __hfma2(half == 0 ? __low2bfloat162(two) : __high2bfloat162(two),
                                         *reinterpret_cast<const __nv_bfloat162*>(&factors),
                                         *reinterpret_cast<const __nv_bfloat162*>(&zeros));
  return float_of(*reinterpret_cast<const std::uint32_t*>(&product));
}

// The same from the elements as they lie in memory, in the fewest operations that there are.
template <class S, Rounding R, bool PoisonedLater = false, class T>
__device__ __forceinline__ Octet quantize_octet(const RawOctet<T>& raw, float multiplier,
                                                bool saturate, const Philox4& words) {
  using Format = typename S::Format;
  if constexpr (pairs_in_bfloat16<S, R, T>) {
    const Octet octet = saturate ? encode_bfloat16_octet<true>(raw.word, multiplier)
                                 : encode_bfloat16_octet<false>(raw.word, multiplier);
    return multiplier < 0.0f ? poison_octet<Format> : octet;
  } else if constexpr (stochastic_in_bfloat16<S, R, T>) {
    // What bfloat16 has no bits for is further below the last place than random words reach.
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = scale_half(raw.word[i / 2], i % 2, multiplier);
    const Octet octet = encode_stochastic_octet<Format>(v, words, saturate);
    return PoisonedLater || multiplier >= 0.0f ? octet : poison_octet<Format>;
  } else if constexpr (is_fp4<Format> && sizeof(T) == 2 && R == Rounding::nearest &&
                       !MXKERN_HAS_CVT_E2M1) {
    float v[8];
    unpack(raw, v);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = __fmul_rn(v[i], multiplier);
    if (saturate) saturate_octet<Format>(v);
    const Octet octet = ptx::encode_e2m1_magnitudes(v) | ptx::e2m1_signs(raw.word);
    return multiplier < 0.0f ? poison_octet<Format> : octet;
  } else {
    float v[8];
    unpack(raw, v);
    return quantize_octet<S, R, PoisonedLater>(v, multiplier, saturate, words);
  }
}

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
