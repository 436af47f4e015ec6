// mxkern/kernels/device/code_unit.cuh: the codes that a lane takes at a time, as words.
#pragma once

#include <cstdint>

#include "mxkern/numerics/codec_ptx.cuh"

namespace mxkern::kernels {

template <class Format, int Octets>
struct CodeUnit {
  static constexpr int octets = Octets;
  static constexpr int codes = 8 * octets;
  static constexpr int bytes = octets * Format::bits;
  static constexpr int alignment = bytes % 16 == 0 ? 16 : bytes % 8 == 0 ? 8 : 4;  // of a load
  std::uint32_t words[bytes / 4];

  __device__ __forceinline__ static CodeUnit load(const std::uint8_t* p) {
    CodeUnit unit;
    if constexpr (alignment == 16) {
#pragma unroll
      for (int i = 0; i < bytes / 16; ++i) {
        const uint4 v = __ldcs(reinterpret_cast<const uint4*>(p) + i);
        unit.words[4 * i] = v.x;
        unit.words[4 * i + 1] = v.y;
        unit.words[4 * i + 2] = v.z;
        unit.words[4 * i + 3] = v.w;
      }
    } else if constexpr (alignment == 8) {
#pragma unroll
      for (int i = 0; i < bytes / 8; ++i) {
        const uint2 v = __ldcs(reinterpret_cast<const uint2*>(p) + i);
        unit.words[2 * i] = v.x;
        unit.words[2 * i + 1] = v.y;
      }
    } else {
      // A warp's loads are on the same lines: the first-level cache has them after the first one.
#pragma unroll
      for (int i = 0; i < bytes / 4; ++i) {
        unit.words[i] = __ldg(reinterpret_cast<const std::uint32_t*>(p) + i);
      }
    }
    return unit;
  }

  // The first `count` codes from any address, zeros behind them.
  __device__ static CodeUnit load_some(const std::uint8_t* p, std::int64_t count) {
    CodeUnit unit;
#pragma unroll
    for (int i = 0; i < bytes / 4; ++i) {
      unit.words[i] = 0;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const std::int64_t bits = count * Format::bits - (4 * i + k) * 8;
        if (bits <= 0) continue;
        const std::uint32_t kept = bits >= 8 ? 0xFFu : (1u << static_cast<int>(bits)) - 1;
        unit.words[i] |= (p[4 * i + k] & kept) << (8 * k);
      }
    }
    return unit;
  }

  __device__ __forceinline__ Octet octet(int i) const {
    if constexpr (Format::bits == 8) {
      return words[2 * i] | static_cast<Octet>(words[2 * i + 1]) << 32;
    } else if constexpr (Format::bits == 4) {
      return words[i];
    } else {
      const int first = i / 2 * 3;
      if (i % 2 == 0) return words[first] | static_cast<Octet>(words[first + 1] & 0xFFFFu) << 32;
      return words[first + 1] >> 16 | static_cast<Octet>(words[first + 2]) << 16;
    }
  }
};

}  // namespace mxkern::kernels
