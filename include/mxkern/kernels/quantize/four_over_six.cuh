// mxkern/kernels/quantize/four_over_six.cuh: NVFP4's choice between two scales of a block.
#pragma once

#include <cstdint>

#include "mxkern/kernels/quantize/octet.cuh"

namespace mxkern::kernels {

// A sixth, rounded to nearest. Where it is normal, the remainder of a product corrects that.
__device__ __forceinline__ float sixth_of(float value) {
  constexpr float sixth = 1.0f / 6.0f, least = 0x1p-100f;
  if (value < least) return __fdiv_rn(value, 6.0f);
  const float near = __fmul_rn(value, sixth);
  return __fmaf_rn(__fmaf_rn(-6.0f, near, value), sixth, near);
}

// nvfp4_four_over_six with the multipliers of a table. For an amax that is not finite there is no
// choice.
template <class S>
__device__ __forceinline__ FourOverSix four_over_six(std::uint32_t amax,
                                                     const BlockScaler<S>& scaler) {
#if MXKERN_HAS_CVT_E4M3
  const float base = lower_of(sixth_of(float_of(amax)) * scaler.tensor.encode, E4M3::max_value);
  const std::uint32_t bytes = ptx::convert_pair<E4M3>(base, 1.5f * base);
  const std::uint32_t six = bytes & UE4M3::nan_byte, four = bytes >> 8 & UE4M3::nan_byte;
  return {{static_cast<std::uint8_t>(six), scaler.multiplier(six)},
          {static_cast<std::uint8_t>(four), scaler.multiplier(four)}};
#else
  return nvfp4_four_over_six(float_of(amax), scaler.tensor);
#endif
}

// The signs of eight elements' codes.
__device__ __forceinline__ Octet octet_signs(const float (&v)[8]) {
  return ptx::place_e2m1_signs(
      ptx::gather_high_bytes(bits_of(v[0]), bits_of(v[2]), bits_of(v[4]), bits_of(v[6])),
      ptx::gather_high_bytes(bits_of(v[1]), bits_of(v[3]), bits_of(v[5]), bits_of(v[7])));
}

template <class T>
__device__ __forceinline__ Octet octet_signs(const RawOctet<T>& raw) {
  if constexpr (sizeof(T) == 2) {
    return ptx::e2m1_signs(raw.word);
  } else {
    float v[8];
    unpack(raw, v);
    return octet_signs(v);
  }
}

template <class T>
__device__ __forceinline__ RawOctet<T> octet_magnitudes(const RawOctet<T>& raw) {
  RawOctet<T> magnitudes;
#pragma unroll
  for (int i = 0; i < RawOctet<T>::words; ++i) {
    magnitudes.word[i] =
        sizeof(T) == 2 ? magnitudes_of<T>(raw.word[i]) : raw.word[i] & float32::magnitude_mask;
  }
  return magnitudes;
}

// Eight codes' magnitudes times their scale, in pairs of halves, which hold them exactly.
__device__ __forceinline__ void decode_magnitudes(Octet octet, std::uint8_t scale,
                                                  float (&decoded)[8]) {
  const auto codes = static_cast<std::uint32_t>(octet);
#if MXKERN_HAS_CVT_E4M3
  const __half2 both = __half2half2(__low2half(ptx::widen_to_halves<E4M3>(scale)));
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    // The upper bytes of 0, .5, 1, 1.5, 2, 3, 4, 6; the lower ones are zeros.
    std::uint32_t bytes;
    asm("prmt.b32 %0, %1, 0x46444240, %2;"
        : "=r"(bytes)
        : "r"(0x3E3C3800u), "r"(codes >> (16 * i)));
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const std::uint32_t pair = __byte_perm(bytes, 0, k == 0 ? 0x1404 : 0x3424);
      const float2 product =
          __half22float2(__hmul2_rn(*reinterpret_cast<const __half2*>(&pair), both));
      decoded[4 * i + 2 * k] = product.x;
      decoded[4 * i + 2 * k + 1] = product.y;
    }
  }
#else
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    decoded[i] =
        decode<E2M1>(static_cast<std::uint8_t>(codes >> (4 * i) & 0xFu)) * UE4M3::decode(scale);
  }
#endif
}

// What nvfp4_add_error adds, for eight magnitudes and codes without signs: an error is
// the same whatever the sign.
__device__ __forceinline__ void octet_errors(const float (&magnitudes)[8], Octet octet,
                                             std::uint8_t scale, const TensorScale& tensor,
                                             float (&errors)[8]) {
  float decoded[8];
  decode_magnitudes(octet, scale, decoded);
#pragma unroll
  for (int i = 0; i < 8; ++i) errors[i] = __fmaf_rn(magnitudes[i], tensor.encode, -decoded[i]);
}

// All threads ask for the same kind.
__device__ __forceinline__ float add_errors(BlockError kind, float sum, const float (&errors)[8]) {
  if (is_of_magnitudes(kind)) {
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = __fadd_rn(sum, fabsf(errors[i]));
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = __fmaf_rn(errors[i], errors[i], sum);
  }
  return sum;
}

// Adds the errors of an octet, in order.
__device__ __forceinline__ float add_octet_errors(BlockError kind, float sum, const float (&v)[8],
                                                  Octet octet, std::uint8_t scale,
                                                  const TensorScale& tensor) {
  float errors[8];
  octet_errors(v, octet, scale, tensor, errors);
  return add_errors(kind, sum, errors);
}

// Whether magnitudes of a block are too large for encode_magnitudes: they are no larger under the
// other scale.
template <class S>
__device__ __forceinline__ bool saturates_six(std::uint32_t amax, const FourOverSix& scales) {
  return block_saturates<S, Rounding::nearest>(amax, scales.six.multiplier);
}

// Codes of eight magnitudes under the multiplier of their block, rounded to nearest.
__device__ __forceinline__ Octet encode_magnitudes(const float (&magnitudes)[8], float multiplier,
                                                   bool saturate) {
  float scaled[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) scaled[i] = __fmul_rn(magnitudes[i], multiplier);
  if (saturate) saturate_octet<E2M1>(scaled);
#if MXKERN_HAS_CVT_E2M1
  return ptx::encode_e2m1_octet(scaled);
#else
  return ptx::encode_e2m1_magnitudes(scaled);
#endif
}

// 4over6 for a block that a thread has to itself: the codes of the better scale, without signs and
// rounded to nearest, and the scale.
template <bool Saturate, BlockError Kind>
__device__ __forceinline__ BlockScale better_scale(const float (&magnitudes)[2][8],
                                                   const FourOverSix& scales,
                                                   const TensorScale& tensor, Octet (&codes)[2]) {
  float error_of_six = 0.0f, error_of_four = 0.0f;
  Octet four[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float(&v)[8] = magnitudes[i];
    codes[i] = encode_magnitudes(v, scales.six.multiplier, Saturate);
    four[i] = encode_magnitudes(v, scales.four.multiplier, Saturate);
    error_of_six = add_octet_errors(Kind, error_of_six, v, codes[i], scales.six.byte, tensor);
    error_of_four = add_octet_errors(Kind, error_of_four, v, four[i], scales.four.byte, tensor);
  }
  const bool take_four = error_of_four < error_of_six;
#pragma unroll
  for (int i = 0; i < 2; ++i) codes[i] = take_four ? four[i] : codes[i];
  return take_four ? scales.four : scales.six;
}

template <BlockError Kind, class S>
__device__ __forceinline__ BlockScale better_scale(const float (&magnitudes)[2][8],
                                                   std::uint32_t amax, const BlockScaler<S>& scaler,
                                                   Octet (&codes)[2]) {
  const FourOverSix scales = four_over_six<S>(amax, scaler);
  if (saturates_six<S>(amax, scales)) {
    return better_scale<true, Kind>(magnitudes, scales, scaler.tensor, codes);
  }
  return better_scale<false, Kind>(magnitudes, scales, scaler.tensor, codes);
}

// By the errors that the scaler names.
template <class S>
__device__ __forceinline__ BlockScale better_scale(const float (&magnitudes)[2][8],
                                                   std::uint32_t amax, const BlockScaler<S>& scaler,
                                                   Octet (&codes)[2]) {
  const FourOverSix scales = four_over_six<S>(amax, scaler);
  constexpr BlockError mse = BlockError::mse, mae = BlockError::mae;
  // Code of its own, and once: beside the other sums it would take registers from these.
  if (is_of_magnitudes(scaler.error))
    return better_scale<true, mae>(magnitudes, scales, scaler.tensor, codes);
  if (saturates_six<S>(amax, scales)) {
    return better_scale<true, mse>(magnitudes, scales, scaler.tensor, codes);
  }
  return better_scale<false, mse>(magnitudes, scales, scaler.tensor, codes);
}

// The error of a block of two octets in adjacent lanes, summed in order; both lanes get it.
template <class S>
__device__ __forceinline__ float pair_error(const float (&magnitudes)[8], Octet octet,
                                            std::uint8_t scale, const BlockScaler<S>& scaler) {
  float errors[8];
  octet_errors(magnitudes, octet, scale, scaler.tensor, errors);
  const float before = __shfl_xor_sync(full_warp, add_errors(scaler.error, 0.0f, errors), 1);
  return __shfl_sync(full_warp, add_errors(scaler.error, before, errors),
                     static_cast<int>(threadIdx.x) | 1);
}

// 4over6 for a block of two octets in adjacent lanes: the codes of the better scale, and its byte.
// All lanes of a warp call it. Errors are those of rounding to nearest, also where codes are
// rounded stochastically: a choice that saw the random bits would bias their mean.
template <class S, Rounding R, class T>
__device__ __forceinline__ std::uint8_t better_of_two(const RawOctet<T>& raw, std::uint32_t amax,
                                                      const BlockScaler<S>& scaler,
                                                      const Philox4& words, Octet& codes) {
  const FourOverSix scales = four_over_six<S>(amax, scaler);
  float magnitudes[8];
  unpack(octet_magnitudes(raw), magnitudes);
  const bool saturate = saturates_six<S>(amax, scales);
  const Octet six = encode_magnitudes(magnitudes, scales.six.multiplier, saturate);
  const Octet four = encode_magnitudes(magnitudes, scales.four.multiplier, saturate);
  const float error_of_six = pair_error(magnitudes, six, scales.six.byte, scaler);
  const float error_of_four = pair_error(magnitudes, four, scales.four.byte, scaler);
  if (!float32::is_finite(amax)) {
    codes = poison_octet<typename S::Format>;
    return S::ScaleFormat::nan_byte;
  }
  const bool take_four = error_of_four < error_of_six;
  if constexpr (R == Rounding::nearest) {
    codes = (take_four ? four : six) | octet_signs(raw);
  } else {
    const float multiplier = take_four ? scales.four.multiplier : scales.six.multiplier;
    float v[8];
    unpack(raw, v);
    codes = quantize_octet<S, R>(v, multiplier, true, words);
  }
  return take_four ? scales.four.byte : scales.six.byte;
}

}  // namespace mxkern::kernels
