// mxkern/kernels/quantize/block_amax.cuh: the largest magnitude of an octet, and over the lanes of
// a block.
#pragma once

#include <cstdint>

#include "mxkern/kernels/device/vector_io.cuh"

namespace mxkern::kernels {

inline constexpr unsigned full_warp = 0xFFFFFFFFu;

// The float32 bits of the largest magnitude: of NaN or Inf, if there is one, at least those of Inf.
__device__ __forceinline__ std::uint32_t octet_amax(const float (&v)[8]) {
  std::uint32_t amax = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) amax = max(amax, bits_of(v[i]) & float32::magnitude_mask);
  return amax;
}

// The largest magnitude of elements as they lie in memory. Pairs of 16-bit magnitudes order like
// floats, and stay pairs until the maximum is asked for.
template <class T>
struct PackedAmax {
  std::uint32_t bits;

  __device__ __forceinline__ PackedAmax higher(PackedAmax other) const {
    return {sizeof(T) == 4 ? max(bits, other.bits) : __vmaxu2(bits, other.bits)};
  }

  // The magnitude of one half of a pair of 16-bit elements, as float32 bits.
  __device__ __forceinline__ std::uint32_t half(int k) const {
    const std::uint32_t own = k == 0 ? bits & 0xFFFFu : bits >> 16;
    if constexpr (dtype_of<T>::value == DType::bfloat16) return own << 16;
    return bits_of(__half2float(__ushort_as_half(static_cast<unsigned short>(own))));
  }

  // As float32 bits.
  __device__ __forceinline__ std::uint32_t value() const {
    if constexpr (sizeof(T) == 4) {
      return bits;
    } else if constexpr (dtype_of<T>::value == DType::bfloat16) {
      return max(bits << 16, bits & 0xFFFF0000u);
    } else {
      const std::uint32_t half = max(bits & 0xFFFFu, bits >> 16);
      return bits_of(__half2float(__ushort_as_half(static_cast<unsigned short>(half))));
    }
  }
};

// The magnitudes of two 16-bit elements.
template <class T>
__device__ __forceinline__ std::uint32_t magnitudes_of(std::uint32_t word) {
  if constexpr (dtype_of<T>::value == DType::bfloat16) return bfloat16_magnitudes(word);
  return word & 0x7FFF7FFFu;
}

template <class T>
__device__ __forceinline__ PackedAmax<T> packed_amax(const RawOctet<T>& raw) {
  if constexpr (sizeof(T) == 4) {
    std::uint32_t amax = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) amax = max(amax, raw.word[i] & float32::magnitude_mask);
    return {amax};
  } else {
    std::uint32_t pairs[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs[i] = magnitudes_of<T>(raw.word[i]);
    return {__vmaxu2(__vimax3_u16x2(pairs[0], pairs[1], pairs[2]), pairs[3])};
  }
}

template <class T>
__device__ __forceinline__ std::uint32_t octet_amax(const RawOctet<T>& raw) {
  return packed_amax(raw).value();
}

// The maximum over aligned groups of `LaneCount` lanes, `Stride` lanes apart; all of them get it.
template <int LaneCount, int Stride = 1>
__device__ __forceinline__ std::uint32_t lanes_amax(std::uint32_t amax) {
#pragma unroll
  for (int step = Stride; step < LaneCount * Stride; step *= 2) {
    amax = max(amax, __shfl_xor_sync(full_warp, amax, step));
  }
  return amax;
}

}  // namespace mxkern::kernels
