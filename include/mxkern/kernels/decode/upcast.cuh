// mxkern/kernels/decode/upcast.cuh: reordered codes and scales to operands of mma, in registers.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mxkern/core/math.h"
#include "mxkern/kernels/decode/parameters.h"
#include "mxkern/kernels/decode/instructions.cuh"
#include "mxkern/kernels/ptx/shared.cuh"
#include "mxkern/numerics/scale_format.h"
#include "mxkern/tensor/lifted_scales.h"

namespace mxkern::kernels::few {

using ptx::read_shared;
using ptx::write_shared;

// The compiler is not to see through this: of the pairs that share it one would have a shift of its
// own then.
__device__ __forceinline__ std::uint32_t rotate_by_six(std::uint32_t word) {
  std::uint32_t turned;
  asm("shf.l.wrap.b32 %0, %1, %1, 6;" : "=r"(turned) : "r"(word));
  return turned;
}

// Bits of `a` where the mask has ones, else of `b`. As logic the compiler would take it apart.
__device__ __forceinline__ std::uint32_t pick_bits(std::uint32_t a, std::uint32_t b,
                                                   std::uint32_t mask) {
  std::uint32_t picked;
  asm("lop3.b32 %0, %1, %2, %3, 0xE4;" : "=r"(picked) : "r"(a), "r"(b), "r"(mask));
  return picked;
}

__device__ __forceinline__ std::uint32_t bits_of_either(std::uint32_t a, std::uint32_t b,
                                                        std::uint32_t mask) {
  std::uint32_t bits;
  asm("lop3.b32 %0, %1, %2, %3, 0xA8;" : "=r"(bits) : "r"(a), "r"(b), "r"(mask));
  return bits;
}

// A pair of codes as two floats of 16 bits: 2^(bias - 127) times the values, half 2^(bias - 15),
// subnormal where they are. Integers: 64 times the values.
template <class Format, bool IsHalf>
__device__ __forceinline__ std::uint32_t decode_pair(const std::uint32_t* words, int pair) {
  using Bits = DecodeBits<Format>;
  if constexpr (Format::is_integer) {
    // The low seven bits as a mantissa over a power of two, less that power and the sign's 128.
    constexpr std::uint32_t base = IsHalf ? 0x64006400u : 0x43004300u;
    const std::uint32_t word = decode_layout::shifted(words[0], Bits::run(pair, 0).shift);
    const std::uint32_t low = (word & 0x007F007Fu) | base;
    const std::uint32_t high = (word & 0x00800080u) | base;
    std::uint32_t value;
    if constexpr (IsHalf) {
      asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(value) : "r"(low), "r"(high));
    } else {
      asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(value) : "r"(low), "r"(high));
    }
    return value;
  } else if constexpr (!IsHalf) {
    if constexpr (std::is_same_v<Format, E2M1>) {
      if (pair >= 2) return turned_pair(rotate_by_six(words[0]), pair);
    }
    return get_pair<Format>(words, pair);
  } else if constexpr (std::is_same_v<Format, E2M1>) {
    // Exponent and mantissa three places higher than for bfloat16, the sign where it is: for two
    // pairs at once; for the last one by three powers of two, of which one has to be by itself,
    // where nothing is that the others have. Shifts that are multiplications go another way than
    // logic.
    constexpr std::uint32_t code = 0x8E008E00u, magnitude = 0x0E000E00u;
    const std::uint32_t higher = words[0] * 8;
    if (pair == 0) return pick_bits(higher, words[0], magnitude) & code;
    const std::uint32_t turned = rotate_by_six(words[0]);
    if (pair < 3) {
      const std::uint32_t both = pick_bits(turned, higher, 0x0FC00FC0u);
      return (pair == 1 ? both : both * 8) & code;
    }
    const std::uint32_t last = bits_of_either(turned, turned, 0x001B001Bu);
    return bits_of_either(last * (1u << 5 | 1u << 10), last * (1u << 12), code);
  } else {
    std::uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < Bits::runs; ++i) {
      const BitRun run = Bits::run(pair, i);
      // Exponent and mantissa three places higher, the sign where it is.
      const std::uint32_t word = decode_layout::crossed<Format>(words[run.word], pair);
      const std::uint32_t payload = (run.mask & 0x7FFFu) << 3, sign = run.mask & 0x8000u;
      if (payload != 0) {
        bits |= decode_layout::shifted(word, run.shift + 3) & payload * 0x10001u;
      }
      if (sign != 0) bits |= decode_layout::shifted(word, run.shift) & sign * 0x10001u;
    }
    return bits;
  }
}

// What sums of products of decoded pairs lack.
template <class K>
MXKERN_HOST_DEVICE constexpr float sum_factor() {
  using Format = typename K::Format;
  constexpr float half = K::scales_weights || K::Scheme::has_tensor_scale ? 1.0f : 0.5f;
  if constexpr (Format::is_integer) {
    return half * Format::min_subnormal;
  } else if constexpr (K::is_half && !K::scales_weights) {
    return half * float32::exp2(15 - Format::bias);
  } else {
    return K::scales_x ? half * float32::exp2(127 - Format::bias - K::x_exponent)
                       : float32::exp2(-K::weight_exponent);
  }
}

// Twice the E8M0 scale in byte `i` of a word: of these none is subnormal.
__device__ __forceinline__ float scale_of(std::uint32_t word, int i) {
  return float_of((__byte_perm(word, 0, 0x4440 + i) + 1) << 23);
}

// One half of a word in both: the multiplication picks it.
template <int Half>
__device__ __forceinline__ std::uint32_t twice_half(std::uint32_t word) {
  std::uint32_t both;
  if constexpr (Half == 0) {
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\nmov.b32 %0, {low, low};\n}\n"
        : "=r"(both)
        : "r"(word));
  } else {
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\nmov.b32 %0, {high, high};\n}\n"
        : "=r"(both)
        : "r"(word));
  }
  return both;
}

// What decoded weights are to be multiplied with, for two scales of NVFP4, each a byte of its half.
template <class K>
__device__ __forceinline__ std::uint32_t lifted_multipliers(std::uint32_t both) {
  constexpr int bias = K::is_half ? 15 : 127, mantissa_bits = K::is_half ? 10 : 7;
  constexpr int offset = bias - LiftedScales::bias + bias - K::Format::bias + K::weight_exponent;
  return (both << (mantissa_bits - LiftedScales::mantissa_bits)) +
         static_cast<std::uint32_t>(offset) * (0x00010001u << mantissa_bits);
}

// The same for the four scales of a word: of rows 0 and 16, and of rows 8 and 24.
template <class K>
__device__ __forceinline__ void multipliers_of(std::uint32_t (&made)[2], std::uint32_t word) {
  static_assert(std::is_same_v<typename K::Scheme::ScaleFormat, UE4M3>,
                "where 32 columns have two scales, these are lifted as UE4M3");
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    made[i] = lifted_multipliers<K>(decode_layout::shifted(word, -8 * i) & 0x00FF00FFu);
  }
}

// A tile's scales as what they are multiplied as, to a word for each row and 32 columns in
// `floats`: those of a row are needed by four lanes, each of which makes a fourth of them, for all.
// Where 32 columns have two scales, each is a half of the word.
template <class K>
__device__ __forceinline__ void widen_scales(std::uint32_t tile, std::uint32_t floats, int lane) {
  const std::uint32_t from = tile + K::layout.code_bytes();
  uint4 made;
  if constexpr (K::layout.block_scales() == 2) {
    const std::uint32_t at = from + (lane / 4 * 2 * DecodeLayout::tile_blocks + lane % 4) * 4;
    std::uint32_t first[2], second[2];
    multipliers_of<K>(first, read_shared<std::uint32_t>(at));
    multipliers_of<K>(second, read_shared<std::uint32_t>(at + DecodeLayout::tile_blocks * 4));
    made = {__byte_perm(first[0], second[0], 0x5410), __byte_perm(first[1], second[1], 0x5410),
            __byte_perm(first[0], second[0], 0x7632), __byte_perm(first[1], second[1], 0x7632)};
  } else {
    const auto word = read_shared<std::uint32_t>(from + lane * 4);
    std::uint32_t values[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (K::scales_weights) {
        // In exponent fields; a byte that would carry beyond is in a row that is not ordinary.
        int offset = 0;
        if constexpr (!K::Format::is_integer) offset = 127 - K::Format::bias + K::weight_exponent;
        values[i] = __byte_perm(word, 0, 0x4040 + 0x101 * i) * 128 +
                    static_cast<std::uint32_t>(offset) * 0x00800080u;
      } else {
        values[i] = bits_of(scale_of(word, i));
      }
    }
    made = {values[0], values[1], values[2], values[3]};
  }
  write_shared(floats + lane / 4 * DecodeShape::scale_stride + lane % 4 * 16, made);
}

}  // namespace mxkern::kernels::few
