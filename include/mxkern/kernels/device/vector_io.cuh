// mxkern/kernels/device/vector_io.cuh: octets of elements and of codes, from memory and to it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "mxkern/core/dtype.h"
#include "mxkern/numerics/codec_ptx.cuh"

namespace mxkern::kernels {

// Eight adjacent elements as they lie in memory.
template <class T>
struct RawOctet {
  static constexpr int words = sizeof(T) * 2;
  std::uint32_t word[words];
};

// 16-byte loads from an aligned address. No streaming hints here and in store_whole_codes: with
// them the quantizers lose 5 % of the copy speed on an H200.
template <class T>
__device__ __forceinline__ RawOctet<T> load_octet(const T* p) {
  RawOctet<T> raw;
  const uint4* source = reinterpret_cast<const uint4*>(p);
#pragma unroll
  for (int i = 0; i < RawOctet<T>::words / 4; ++i) {
    const uint4 part = source[i];
    raw.word[4 * i] = part.x;
    raw.word[4 * i + 1] = part.y;
    raw.word[4 * i + 2] = part.z;
    raw.word[4 * i + 3] = part.w;
  }
  return raw;
}

// Has the second-level cache read an octet.
template <class T>
__device__ __forceinline__ void fetch_octet(const T* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

template <class T>
__device__ __forceinline__ void set_element(RawOctet<T>& raw, int i, T value) {
  if constexpr (sizeof(T) == 4) {
    raw.word[i] = bits_of(value);
  } else {
    raw.word[i / 2] |= static_cast<std::uint32_t>(value.bits) << (16 * (i % 2));
  }
}

// The first `count` elements from any address, zeros behind them.
template <class T>
__device__ __forceinline__ RawOctet<T> load_elements(const T* p, std::int64_t count) {
  RawOctet<T> raw = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i < count) set_element(raw, i, p[i]);
  }
  return raw;
}

// Loads up to `count` elements (8 and more: all of them; 0 and less: none).
template <class T>
__device__ __forceinline__ RawOctet<T> load_guarded(const T* p, std::int64_t count, bool vectors) {
  if (vectors && count >= 8) return load_octet(p);
  return load_elements(p, count);
}

// The two 16-bit elements of a word.
template <class T>
__device__ __forceinline__ float2 unpack_pair(std::uint32_t word) {
  if constexpr (dtype_of<T>::value == DType::bfloat16) {
    return make_float2(float_of(word << 16), float_of(word & 0xFFFF0000u));
  } else {
    return __half22float2(*reinterpret_cast<const __half2*>(&word));
  }
}

template <class T>
__device__ __forceinline__ void unpack(const RawOctet<T>& raw, float (&v)[8]) {
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = float_of(raw.word[i]);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = unpack_pair<T>(raw.word[i]);
      v[2 * i] = pair.x;
      v[2 * i + 1] = pair.y;
    }
  }
}

// One float32 as an element, rounded to nearest even; a NaN has some NaN's bits.
template <class T>
__device__ __forceinline__ T round_to(float value) {
  if constexpr (sizeof(T) == 4) {
    return value;
  } else if constexpr (dtype_of<T>::value == DType::bfloat16) {
    return {__bfloat16_as_ushort(__float2bfloat16_rn(value))};
  } else {
    return {__half_as_ushort(__float2half_rn(value))};
  }
}

// Two 16-bit elements as one word, rounded to nearest even.
template <class T>
__device__ __forceinline__ std::uint32_t pack_pair(float low, float high) {
  if constexpr (dtype_of<T>::value == DType::bfloat16) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  }
}

template <class T>
__device__ __forceinline__ RawOctet<T> pack(const float (&v)[8]) {
  RawOctet<T> raw;
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < 8; ++i) raw.word[i] = bits_of(v[i]);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) raw.word[i] = pack_pair<T>(v[2 * i], v[2 * i + 1]);
  }
  return raw;
}

// Rounds float32 values to the element type and back.
template <class T>
__device__ __forceinline__ void round_octet(float (&v)[8]) {
  if constexpr (sizeof(T) != 4) unpack(pack<T>(v), v);
}

// 16-byte stores to an aligned address, past the cache: dequantizing writes more than it reads, and
// gains 3 % of the copy speed on an H200 by it.
template <class T>
__device__ __forceinline__ void store_octet(T* p, const RawOctet<T>& raw) {
#pragma unroll
  for (int i = 0; i < RawOctet<T>::words / 4; ++i) {
    __stcs(reinterpret_cast<uint4*>(p) + i, make_uint4(raw.word[4 * i], raw.word[4 * i + 1],
                                                       raw.word[4 * i + 2], raw.word[4 * i + 3]));
  }
}

// The same of octets that lie side by side, those of lanes 2 i and 2 i + 1. All lanes of a warp
// call it but those of pairs that have ended; what does not exist is not stored. Two lanes store 32
// bytes of float32 at a time: 16 of every 32, twice, take 1.8 times as long.
template <class T>
__device__ __forceinline__ void store_octet_beside(T* p, const RawOctet<T>& raw,
                                                   bool exists = true) {
  if constexpr (sizeof(T) == 4) {
    const bool is_odd = threadIdx.x % 2 != 0;
    std::uint32_t first[4], second[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const std::uint32_t own = is_odd ? raw.word[i + 4] : raw.word[i];
      const std::uint32_t other =
          __shfl_xor_sync(0xFFFFFFFFu, is_odd ? raw.word[i] : raw.word[i + 4], 1);
      first[i] = is_odd ? other : own;
      second[i] = is_odd ? own : other;
    }
    if (!exists) return;
    uint4* to = reinterpret_cast<uint4*>(p) - (is_odd ? 1 : 0);
    __stcs(to, make_uint4(first[0], first[1], first[2], first[3]));
    __stcs(to + 2, make_uint4(second[0], second[1], second[2], second[3]));
  } else if (exists) {
    store_octet(p, raw);
  }
}

// The first `count` elements to any address.
template <class T>
__device__ __forceinline__ void store_elements(T* p, const RawOctet<T>& raw, std::int64_t count) {
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if (i < count) {
      if constexpr (sizeof(T) == 4) {
        p[i] = float_of(raw.word[i]);
      } else {
        p[i] = T{static_cast<std::uint16_t>(raw.word[i / 2] >> (16 * (i % 2)))};
      }
    }
  }
}

// Where in its row a lane stores with store_whole_codes, for an octet that begins at byte `start`.
template <int Bytes>
__device__ __forceinline__ std::int64_t whole_codes_start(std::int64_t start) {
  return Bytes == 6 ? start + threadIdx.x % 4 * 2 : start;
}

// Stores a whole octet of a row to whole_codes_start, where whole octets lie on multiples of their
// size and the address is aligned to 8 (to 4 for 4 bits an element). All lanes of a warp call it,
// adjacent octets of a row in adjacent lanes; those of an octet that is not there do not store.
template <int Bytes>
__device__ __forceinline__ void store_whole_codes(std::uint8_t* to, Octet octet,
                                                  bool inside = true) {
  const auto low = static_cast<std::uint32_t>(octet);
  const auto high = static_cast<std::uint32_t>(octet >> 32);
  if constexpr (Bytes == 6) {
    // Four lanes hold 24 bytes; three of them store 8 each: those of their own octet that the lane
    // before leaves, and the first ones of the next.
    const std::uint32_t next_low = __shfl_down_sync(0xFFFFFFFFu, low, 1);
    const std::uint32_t next_high = __shfl_down_sync(0xFFFFFFFFu, high, 1);
    const unsigned part = threadIdx.x % 4;
    const bool last = part == 2;
    const std::uint32_t middle = last ? next_low : high;
    const std::uint32_t first = __byte_perm(last ? high : low, middle,
                                            part == 0   ? 0x3210
                                            : part == 1 ? 0x5432
                                                        : 0x5410);
    const std::uint32_t second = __byte_perm(middle, last ? next_high : next_low,
                                             part == 0   ? 0x5410
                                             : part == 1 ? 0x7654
                                                         : 0x5432);
    if (inside && part < 3) *reinterpret_cast<uint2*>(to) = make_uint2(first, second);
  } else if constexpr (Bytes == 8) {
    if (inside) *reinterpret_cast<uint2*>(to) = make_uint2(low, high);
  } else {
    if (inside) *reinterpret_cast<std::uint32_t*>(to) = low;
  }
}

// The same as far as the row's bytes reach, to any address.
template <int Bytes>
__device__ __forceinline__ void store_codes(std::uint8_t* row, std::int64_t start,
                                            std::int64_t row_bytes, Octet octet) {
#pragma unroll
  for (int i = 0; i < Bytes; ++i) {
    if (start + i < row_bytes) row[start + i] = static_cast<std::uint8_t>(octet >> (8 * i));
  }
}

// A whole octet from an address aligned to its size. 6 bits an element: to 2, in a row that begins
// on 4 and whose last octet ends there; exchanging bytes between lanes to load 8 at a time measured
// slower.
template <int Bytes>
__device__ __forceinline__ Octet load_whole_codes(const std::uint8_t* p) {
  if constexpr (Bytes == 8) {
    const uint2 word = __ldcs(reinterpret_cast<const uint2*>(p));
    return word.x | static_cast<Octet>(word.y) << 32;
  } else if constexpr (Bytes == 4) {
    return __ldcs(reinterpret_cast<const std::uint32_t*>(p));
  } else {
    const bool second = (reinterpret_cast<std::uintptr_t>(p) & 2) != 0;
    const auto* words = reinterpret_cast<const std::uint32_t*>(p - (second ? 2 : 0));
    const std::uint32_t low = __ldcs(words), high = __ldcs(words + 1);
    return __byte_perm(low, high, second ? 0x5432 : 0x3210) |
           static_cast<Octet>(second ? high >> 16 : high & 0xFFFFu) << 32;
  }
}

// The first `bytes` bytes of an octet from any address, zeros behind them.
template <int Bytes>
__device__ __forceinline__ Octet load_codes(const std::uint8_t* p, std::int64_t bytes) {
  Octet octet = 0;
#pragma unroll
  for (int i = 0; i < Bytes; ++i) {
    if (i < bytes) octet |= static_cast<Octet>(p[i]) << (8 * i);
  }
  return octet;
}

}  // namespace mxkern::kernels
