// mxkern/kernels/block_amax.cuh: the largest magnitude of an octet, and over the lanes of a block.
#pragma once

#include <cstdint>

#include "mxkern/kernels/vector_io.cuh"

namespace mxkern::kernels {

inline constexpr unsigned full_warp = 0xFFFFFFFFu;

// The float32 bits of the largest magnitude: of NaN or Inf, if there is one, at least those of Inf.
__device__ __forceinline__ std::uint32_t octet_amax(const float (&v)[8]) {
  std::uint32_t amax = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) amax = max(amax, bits_of(v[i]) & float32::magnitude_mask);
  return amax;
}

// The same from the elements as they lie in memory: pairs of 16-bit magnitudes order like floats.
template <class T>
__device__ __forceinline__ std::uint32_t octet_amax(const RawOctet<T>& raw) {
  if constexpr (sizeof(T) == 4) {
    std::uint32_t amax = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) amax = max(amax, raw.word[i] & float32::magnitude_mask);
    return amax;
  } else {
    std::uint32_t pairs = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) pairs = __vmaxu2(pairs, raw.word[i] & 0x7FFF7FFFu);
    const std::uint32_t bits = max(pairs & 0xFFFFu, pairs >> 16);
    if constexpr (dtype_of<T>::value == DType::bfloat16) return bits << 16;
    return bits_of(__half2float(__ushort_as_half(static_cast<unsigned short>(bits))));
  }
}

// The maximum over aligned groups of `Lanes` adjacent lanes; all of them get it.
template <int LaneCount>
__device__ __forceinline__ std::uint32_t lanes_amax(std::uint32_t amax) {
#pragma unroll
  for (int step = 1; step < LaneCount; step *= 2) {
    amax = max(amax, __shfl_xor_sync(full_warp, amax, step));
  }
  return amax;
}

}  // namespace mxkern::kernels
