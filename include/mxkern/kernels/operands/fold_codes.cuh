// mxkern/kernels/operands/fold_codes.cuh: fold_code for eight packed codes, with conversion
// instructions.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "mxkern/numerics/codec_ptx.cuh"
#include "mxkern/numerics/fold.h"

namespace mxkern::kernels {

// What is looked up in shared memory: for a format of 4 bits the folded magnitudes at every
// distance, and behind the last distance what a poisoned block becomes.
template <class Format>
struct FoldTable {
  static constexpr bool is_used = is_fp4<Format>;
  static constexpr int distances = 40;  // at the last one nothing is left of any element
  static constexpr int entries = is_used ? distances + 1 : 1;
  std::uint32_t magnitudes[entries][2];

  // All threads of a thread block call this.
  __device__ __forceinline__ void fill() {
    if constexpr (is_used) {
      static_assert(fold_code<Format>(Format::max_code, distances - 1) == 0);
      auto* bytes = reinterpret_cast<std::uint8_t*>(magnitudes);
      for (int i = static_cast<int>(threadIdx.x); i < entries * 8; i += blockDim.x) {
        bytes[i] = i / 8 == distances ? Fold<Format>::Target::poison_code
                                      : fold_code<Format>(static_cast<std::uint8_t>(i % 8), i / 8);
      }
      __syncthreads();
    }
  }
};

// Four 8-bit floats as halves, exactly: for E5M2 they are the upper bytes.
template <class Target>
__device__ __forceinline__ void halves_of(std::uint32_t codes, __half2 (&pairs)[2]) {
  std::uint32_t low = 0, high = 0;
  if constexpr (Target::mantissa_bits == 3) {
#if MXKERN_HAS_CVT_E4M3
    asm("{\n"
        ".reg .b16 low, high;\n"
        "mov.b32 {low, high}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, low;\n"
        "cvt.rn.f16x2.e4m3x2 %1, high;\n"
        "}\n"
        : "=r"(low), "=r"(high)
        : "r"(codes));
#endif
  } else {
    low = __byte_perm(codes, 0, 0x1404);
    high = __byte_perm(codes, 0, 0x3424);
  }
  pairs[0] = *reinterpret_cast<const __half2*>(&low);
  pairs[1] = *reinterpret_cast<const __half2*>(&high);
}

// Two halves to two 8-bit floats, rounded to nearest, saturating; NaN to the positive NaN.
template <class Target>
__device__ __forceinline__ std::uint32_t round_halves(__half2 halves) {
  std::uint16_t pair = 0;
#if MXKERN_HAS_CVT_E4M3
  const std::uint32_t word = *reinterpret_cast<const std::uint32_t*>(&halves);
  if constexpr (Target::mantissa_bits == 3) {
    asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(pair) : "r"(word));
  } else {
    asm("cvt.rn.satfinite.e5m2x2.f16x2 %0, %1;" : "=h"(pair) : "r"(word));
  }
#endif
  return pair;
}

// Four 8-bit floats times factors of pairs, after 2^15 where they are raised.
template <class Target, bool Raised = false>
__device__ __forceinline__ std::uint32_t fold_quad(std::uint32_t codes, __half2 low, __half2 high) {
  __half2 halves[2];
  halves_of<Target>(codes, halves);
  std::uint32_t pairs[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if constexpr (Raised) halves[i] = __hmul2(halves[i], __float2half2_rn(0x1p15f));
    pairs[i] = round_halves<Target>(__hmul2(halves[i], i == 0 ? low : high));
  }
  return mxkern::ptx::join_pair(pairs[0], pairs[1]);
}

// The folding of the elements of one block.
template <class Format>
class BlockFold {
 public:
  using Target = typename Fold<Format>::Target;

  // What the elements of a block are multiplied by that lies `distance` octaves below the row's
  // largest scale. A half holds the powers 2^-24 to 2^15: from below it is rounded to, so that 0 is
  // what is left; what lies above is for a factor of its own. A product that loses bits on the way
  // is too small for the target's smallest element. NaN makes NaN of all.
  __device__ static __forceinline__ __half2 factor_of(unsigned distance, bool is_poisoned) {
    static_assert(!FoldTable<Format>::is_used);
    const int exponent = total_shift - fixed_shift - static_cast<int>(min(distance, 60u));
    const std::uint32_t power = static_cast<std::uint32_t>(exponent + float32::bias)
                                << float32::mantissa_bits;
    return __float2half2_rn(float_of(is_poisoned ? float32::nan_bits : power));
  }

  // With that known: for formats without Inf.
  __device__ __forceinline__ explicit BlockFold(__half2 factor) : factor_(factor) {
    static_assert(!FoldTable<Format>::is_used && Format::specials != Specials::ieee);
  }

  // `distance` octaves below the row's largest scale.
  __device__ __forceinline__ BlockFold(unsigned distance, bool is_poisoned,
                                       const FoldTable<Format>& table)
      : distance_(is_poisoned ? 0 : distance), is_poisoned_(is_poisoned) {
    if constexpr (FoldTable<Format>::is_used) {
      using Table = FoldTable<Format>;
      const int entry = is_poisoned ? Table::distances : min(distance, Table::distances - 1u);
      low_ = table.magnitudes[entry][0];
      high_ = table.magnitudes[entry][1];
      signs_ = is_poisoned ? 0u : 0x80808080u;
    } else {
      factor_ = factor_of(distance, is_poisoned);
    }
  }

  // Eight folded codes, a byte each.
  __device__ __forceinline__ uint2 operator()(Octet octet) const {
    if constexpr (FoldTable<Format>::is_used) {
      return look_up(static_cast<std::uint32_t>(octet));
    } else if constexpr (!MXKERN_HAS_CVT_E4M3) {
      return one_by_one(octet);
    } else {
      if constexpr (is_fp6<Format>) {
        return {fold_quad(widen_sixes(static_cast<std::uint32_t>(octet) & 0xFFFFFFu)),
                fold_quad(widen_sixes(static_cast<std::uint32_t>(octet >> 24) & 0xFFFFFFu))};
      } else {
        const auto low = static_cast<std::uint32_t>(octet);
        const auto high = static_cast<std::uint32_t>(octet >> 32);
        if constexpr (Format::specials == Specials::ieee) {
          // Conversions saturate, and Inf has to stay; the format has more octaves than a half has
          // below 1. Both are rare enough to go one by one.
          constexpr std::uint32_t step = 0x04040404u;
          const std::uint32_t found = ((low & 0x7F7F7F7Fu) + step) | ((high & 0x7F7F7F7Fu) + step);
          if ((found & 0x80808080u) != 0 || distance_ > 24) return one_by_one(octet);
        }
        return {fold_quad(low), fold_quad(high)};
      }
    }
  }

  // Sixteen of 8 bits.
  __device__ __forceinline__ uint4 operator()(const uint4& codes) const {
    static_assert(is_fp8<Format>);
    const auto octet = [](std::uint32_t low, std::uint32_t high) {
      return low | static_cast<Octet>(high) << 32;
    };
    const uint2 low = (*this)(octet(codes.x, codes.y)), high = (*this)(octet(codes.z, codes.w));
    return make_uint4(low.x, low.y, high.x, high.y);
  }

 private:
  // Octaves that an element is raised by at distance 0, from where its bits stand in a half.
  static constexpr int total_shift =
      Fold<Format>::base_shift +
      (is_fp6<Format> ? folding::log2_of(mxkern::ptx::to_wider<Format>) * -1 : 0);
  static constexpr int fixed_shift = total_shift > 15 ? 15 : 0;

  // Four 6-bit codes to the 8-bit floats that have the same low bits.
  __device__ static __forceinline__ std::uint32_t widen_sixes(std::uint32_t packed) {
    const std::uint32_t sixes = mxkern::ptx::spread_sixes(packed);
    return (sixes & 0x1F1F1F1Fu) | (sixes & 0x20202020u) << 2;
  }

  __device__ __forceinline__ std::uint32_t fold_quad(std::uint32_t codes) const {
    return kernels::fold_quad<Target, fixed_shift != 0>(codes, factor_, factor_);
  }

  // Magnitudes by the three low bits of each code, signs from the fourth.
  __device__ __forceinline__ uint2 look_up(std::uint32_t codes) const {
    const std::uint32_t magnitudes = codes & 0x77777777u;
    const std::uint32_t even_signs = codes << 4;
    const std::uint32_t low_signs = __byte_perm(even_signs, codes, 0x5140);
    const std::uint32_t high_signs = __byte_perm(even_signs, codes, 0x7362);
    return {__byte_perm(low_, high_, magnitudes) | (low_signs & signs_),
            __byte_perm(low_, high_, magnitudes >> 16) | (high_signs & signs_)};
  }

  __device__ __forceinline__ uint2 one_by_one(Octet octet) const {
    std::uint32_t words[2] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const auto code =
          static_cast<std::uint8_t>((octet >> (Format::bits * i)) & ((1u << Format::bits) - 1));
      const std::uint32_t folded =
          is_poisoned_ ? Target::poison_code : fold_code<Format>(code, distance_);
      words[i / 4] |= folded << (8 * (i % 4));
    }
    return {words[0], words[1]};
  }

  unsigned distance_;
  bool is_poisoned_;
  __half2 factor_;
  std::uint32_t low_, high_, signs_;
};

// Whether all eight codes are zeros, of either sign.
template <class Format>
__device__ __forceinline__ bool octet_is_zero(Octet octet) {
  constexpr Octet magnitudes = [] {
    Octet mask = 0;
    for (int i = 0; i < 8; ++i) {
      mask |= static_cast<Octet>(Format::magnitude_mask) << Format::bits * i;
    }
    return mask;
  }();
  return (octet & magnitudes) == 0;
}

}  // namespace mxkern::kernels
