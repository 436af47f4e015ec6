// mxkern/kernels/four_over_six.cuh: NVFP4's choice between two scales of a block.
#pragma once

#include <cstdint>

#include "mxkern/kernels/quantize_octet.cuh"

namespace mxkern::kernels {

// nvfp4_four_over_six with the multipliers of a table. For an amax that is not finite there is no
// choice.
template <class S>
__device__ __forceinline__ FourOverSix four_over_six(std::uint32_t amax,
                                                     const BlockScaler<S>& scaler) {
#if MXKERN_HAS_CVT_E4M3
  const float base =
      lower_of(float_of(amax) / E2M1::max_value * scaler.tensor.encode, E4M3::max_value);
  const std::uint32_t bytes = ptx::convert_pair<E4M3>(base, 1.5f * base);
  const std::uint32_t six = bytes & UE4M3::nan_byte, four = bytes >> 8 & UE4M3::nan_byte;
  return {{static_cast<std::uint8_t>(six), scaler.multiplier(six)},
          {static_cast<std::uint8_t>(four), scaler.multiplier(four)}};
#else
  return nvfp4_four_over_six(float_of(amax), scaler.tensor);
#endif
}

// What nvfp4_add_squared_error squares, for eight elements.
__device__ __forceinline__ void octet_errors(const float (&v)[8], Octet octet, std::uint8_t scale,
                                             const TensorScale& tensor, float (&errors)[8]) {
  float decoded[8];
#if MXKERN_HAS_CVT_E4M3
  // Products of codes and block scales are exact in bfloat16.
  const std::uint32_t half = bits_of(ptx::widen_pair<E4M3>(scale).x) >> 16;
  const std::uint32_t pair = half * 0x00010001u;
  RawOctet<bfloat16> raw;
  decode_bfloat16_octet<E2M1>(octet, raw.word);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __nv_bfloat162 product =
        __hmul2_rn(*reinterpret_cast<const __nv_bfloat162*>(&raw.word[i]),
                   *reinterpret_cast<const __nv_bfloat162*>(&pair));
    raw.word[i] = *reinterpret_cast<const std::uint32_t*>(&product);
  }
  unpack(raw, decoded);
#else
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    decoded[i] =
        decode<E2M1>(static_cast<std::uint8_t>(octet >> (4 * i) & 0xFu)) * UE4M3::decode(scale);
  }
#endif
#pragma unroll
  for (int i = 0; i < 8; ++i) errors[i] = __fmaf_rn(v[i], tensor.encode, -decoded[i]);
}

__device__ __forceinline__ float add_squares(float sum, const float (&errors)[8]) {
#pragma unroll
  for (int i = 0; i < 8; ++i) sum = __fmaf_rn(errors[i], errors[i], sum);
  return sum;
}

// Adds the squared errors of an octet, in order.
__device__ __forceinline__ float add_octet_errors(float sum, const float (&v)[8], Octet octet,
                                                  std::uint8_t scale, const TensorScale& tensor) {
  float errors[8];
  octet_errors(v, octet, scale, tensor, errors);
  return add_squares(sum, errors);
}

// The error of a block of two octets in adjacent lanes, summed in order; both lanes get it.
__device__ __forceinline__ float pair_error(const float (&v)[8], Octet octet, std::uint8_t scale,
                                            const TensorScale& tensor) {
  float errors[8];
  octet_errors(v, octet, scale, tensor, errors);
  const float before = __shfl_xor_sync(full_warp, add_squares(0.0f, errors), 1);
  return __shfl_sync(full_warp, add_squares(before, errors), static_cast<int>(threadIdx.x) | 1);
}

// 4over6 for a block of two octets in adjacent lanes: the codes of the better scale, and its byte.
// All lanes of a warp call it. Errors are those of rounding to nearest, also where codes are
// rounded stochastically: a choice that saw the random bits would bias their mean.
template <class S, Rounding R, class T>
__device__ __forceinline__ std::uint8_t better_of_two(const RawOctet<T>& raw, std::uint32_t amax,
                                                      const BlockScaler<S>& scaler,
                                                      const std::uint32_t (&words)[8],
                                                      Octet& codes) {
  constexpr Rounding nearest = Rounding::nearest;
  const FourOverSix scales = four_over_six<S>(amax, scaler);
  const bool saturate =
      __any_sync(full_warp, block_saturates<S, nearest>(amax, scales.six.multiplier) ||
                                block_saturates<S, nearest>(amax, scales.four.multiplier));
  const Octet six = quantize_octet<S, nearest>(raw, scales.six.multiplier, saturate, words);
  const Octet four = quantize_octet<S, nearest>(raw, scales.four.multiplier, saturate, words);
  float v[8];
  unpack(raw, v);
  const float error_of_six = pair_error(v, six, scales.six.byte, scaler.tensor);
  const float error_of_four = pair_error(v, four, scales.four.byte, scaler.tensor);
  if (!float32::is_finite(amax)) {
    codes = poison_octet<typename S::Format>;
    return S::ScaleFormat::nan_byte;
  }
  const bool take_four = error_of_four < error_of_six;
  codes = take_four ? four : six;
  if constexpr (R == Rounding::stochastic) {
    const float multiplier = take_four ? scales.four.multiplier : scales.six.multiplier;
    codes = quantize_octet<S, R>(v, multiplier, true, words);
  }
  return take_four ? scales.four.byte : scales.six.byte;
}

}  // namespace mxkern::kernels
