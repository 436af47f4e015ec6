// mxkern/numerics/codec_halves.cuh: NVFP4 codes of bfloat16 elements, two at a time in half
// precision, with the bits that a float32 product gives.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "mxkern/numerics/codec_ptx.cuh"
#include "mxkern/numerics/tensor_scale.h"

namespace mxkern {

// A code depends on which of E2M1's seven ties the product of element and multiplier, rounded to
// float32, lies above. Elements of 8 significant bits are far apart: at a tie, only the largest one
// below and the smallest one above count, and all ties have one of four significands. So under most
// multipliers there are two factors of 11 bits whose products put these eight elements on the right
// sides; the first product is rounded, the second one joins the lines of ptx::encode_e2m1. A
// multiplier's significand depends on the tensor's scale and on the three bits of the block
// scale's: eight searches a tensor.
struct HalfFactors {
  std::uint32_t bits;  // the first factor in the low half, the second in the upper one

  __device__ __forceinline__ static std::uint32_t first_of(HalfFactors low, HalfFactors high) {
    return __byte_perm(low.bits, high.bits, 0x5410);
  }
  __device__ __forceinline__ static std::uint32_t second_of(HalfFactors low, HalfFactors high) {
    return __byte_perm(low.bits, high.bits, 0x7632);
  }
};

namespace ptx {

__device__ __forceinline__ __half2 halves(std::uint32_t bits) {
  return *reinterpret_cast<const __half2*>(&bits);
}

__device__ __forceinline__ std::uint32_t bits_of_halves(__half2 pair) {
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

}  // namespace ptx

// How a tensor's elements become halves: times 2^power, where S_enc lies in [2^power, 2^(power+1)).
// What counts is then normal; less than that becomes less than any tie.
struct HalfRange {
  static constexpr int half_bias = 15;
  static constexpr int lowest = -20, highest = 110;  // powers for which the factor is a bfloat16
  int power;

  __device__ __forceinline__ static HalfRange of(const TensorScale& tensor) {
    return {static_cast<int>(bits_of(tensor.encode) >> float32::mantissa_bits) - float32::bias};
  }

  __device__ __forceinline__ bool fits() const { return power >= lowest && power <= highest; }

  // A factor for two bfloat16 magnitudes whose products, moved up by three bits, are halves.
  __device__ __forceinline__ std::uint32_t factor() const {
    const float value = float32::exp2(power - (float32::bias - half_bias));
    return (bits_of(value) >> 16) * 0x00010001u;
  }
};

// Two bfloat16 elements' magnitudes as halves.
__device__ __forceinline__ std::uint32_t to_halves(std::uint32_t word, std::uint32_t factor) {
  const __nv_bfloat162 magnitudes = __habs2(*reinterpret_cast<const __nv_bfloat162*>(&word));
  const __nv_bfloat162 scaled =
      __hmul2_rn(magnitudes, *reinterpret_cast<const __nv_bfloat162*>(&factor));
  return *reinterpret_cast<const std::uint32_t*>(&scaled) << 3;
}

// The factors of two elements, as the encoder takes them.
struct HalfLines {
  __half2 first, twice, once, half;

  __device__ __forceinline__ HalfLines(std::uint32_t first_factors, std::uint32_t second_factors)
      : first(ptx::halves(first_factors)), once(ptx::halves(second_factors)) {
    twice = __hadd2_rn(once, once);
    half = __hmul2_rn(once, __float2half2_rn(0.5f));
  }

  // Two halves to E2M1 magnitudes, in bits 0 to 2 of each half; the low bytes hold nothing else.
  __device__ __forceinline__ std::uint32_t encode(std::uint32_t pair) const {
    const __half2 product = __hmul2_rn(ptx::halves(pair), first);
    const auto line = [&](__half2 slope, float start) {
      return ptx::bits_of_halves(__hfma2(product, slope, __float2half2_rn(start)));
    };
    return __vimin3_u16x2(line(twice, 1024.0f), line(once, 1026.0f), line(half, 1028.0f));
  }
};

// Finds factors for a multiplier with significand 1 <= `significand` < 2. All lanes of a warp call
// it. Groups of `Lanes` lanes try a second factor each; all get what one of them has found, or
// zeros. 32 lanes find factors for every tensor, fewer for most.
template <int Lanes>
__device__ __forceinline__ HalfFactors find_half_factors(float significand) {
  constexpr float ties[4] = {1.0f, 1.25f, 1.5f, 1.75f};
  constexpr int reach = Lanes == 32 ? 1 : 0;
  // The elements beside the ties.
  float below[4], above[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    constexpr std::uint32_t step = 0x10000u;
    std::uint32_t element = (bits_of(__fdividef(ties[i], significand)) & 0xFFFF0000u) - step;
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      const float product = __fmul_rn(float_of(element), significand);
      // The lower two are rounded down, to even codes.
      if (i < 2 ? product <= ties[i] : product < ties[i]) element += step;
    }
    above[i] = float_of(element);
    below[i] = float_of(element - step);
  }
  const float second = 1.0f + static_cast<float>(threadIdx.x % Lanes) * (1.0f / Lanes);
  const __half middle = __float2half_rn(__fdividef(significand, second));
  std::uint32_t found = 0;
#pragma unroll
  for (int offset = -reach; offset <= reach; ++offset) {
    const __half first =
        __ushort_as_half(static_cast<unsigned short>(__half_as_ushort(middle) + offset));
    const auto product = [&](float element) {
      return __fmul_rn(__half2float(__hmul_rn(__float2half_rn(element), first)), second);
    };
    bool right = true;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float lower = product(below[i]), upper = product(above[i]);
      right = right &&
              (i < 2 ? lower <= ties[i] && upper > ties[i] : lower < ties[i] && upper >= ties[i]);
    }
    if (right) {
      found = __half_as_ushort(first) |
              static_cast<std::uint32_t>(__half_as_ushort(__float2half_rn(second))) << 16;
    }
  }
  const unsigned group = threadIdx.x % 32 / Lanes * Lanes;
  const unsigned lanes =
      __ballot_sync(0xFFFFFFFFu, found != 0) >> group & (0xFFFFFFFFu >> (32 - Lanes));
  const std::uint32_t best =
      __shfl_sync(0xFFFFFFFFu, found, static_cast<int>(group) + max(__ffs(lanes) - 1, 0));
  return {best};
}

// The same factors for a multiplier with that significand, in a range.
__device__ __forceinline__ HalfFactors move_half_factors(HalfFactors factors, float multiplier,
                                                         HalfRange range) {
  const auto exponent = static_cast<int>(bits_of(multiplier) >> float32::mantissa_bits);
  // A half's exponent field moves by as much as the multiplier's exponent.
  return {factors.bits +
          (static_cast<std::uint32_t>(exponent - float32::bias - range.power) << 10)};
}

}  // namespace mxkern
