// cpu/gemm/elements.h: stored elements to float32 lanes, those of even and of odd k apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "cpu/kernels/code_pairs.h"
#include "cpu/kernels/decode_codes.h"
#include "cpu/kernels/lanes_memory.h"
#include "mxkern/core/dtype.h"
#include "mxkern/numerics/codec.h"
#include "mxkern/numerics/scheme.h"

namespace mxkern::cpu {
namespace {

// A step covers lane_count pairs of neighbours along K. A pair is what bfloat16 units take, and to
// read codes two by two suits every width. Float32 units see the same order: first the even
// elements of a step, then the odd ones. The order is the same for both operands, so it only
// permutes the sum.
inline constexpr int step = 2 * lane_count;

struct Pairs {
  FloatLanes even;
  FloatLanes odd;
};

#if defined(__AVX2__)
using HalfInts = std::int16_t __attribute__((vector_size(2 * lane_count)));

// The codes of a step, two neighbours a lane: the odd one in the upper bits, the even one right
// below; what is below both is arbitrary.
template <int Bits>
[[gnu::always_inline]] inline HalfInts load_upper_pairs(const std::uint8_t* bytes) {
  if constexpr (Bits == 8) {
    return load_vector<HalfInts>(bytes);
#if !defined(__AVX512F__)
  } else if constexpr (Bits == 4) {
    const __m128i pairs = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes));
    return HalfInts(_mm_unpacklo_epi8(_mm_setzero_si128(), pairs));
  } else {
    static_assert(Bits == 6, "4-, 6- and 8-bit codes exist");
    // Three bytes hold two pairs: the first one's upper four bits are the second one's.
    const __m128i packed =
        _mm_insert_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)),
                         load_vector<std::int32_t>(bytes + 8), 2);
    const __m128i order = _mm_setr_epi8(0, 1, 1, 2, 3, 4, 4, 5, 6, 7, 7, 8, 9, 10, 10, 11);
    return HalfInts(_mm_mullo_epi16(_mm_shuffle_epi8(packed, order), _mm_set1_epi32(1 << 16 | 16)));
#endif
  }
}

// Short floats are cut-off halves, E5M2 exactly and others but for the bias: the processor's own
// conversion takes subnormals in its stride.
template <class Format>
[[gnu::always_inline]] inline Pairs load_short_floats(const std::uint8_t* bytes) {
  constexpr int right = 5 - Format::exponent_bits;
  constexpr int lowest = 16 - Format::bits - right;  // of a half's bits, that a code has
  constexpr auto mask = static_cast<std::int16_t>(0x8000 | Format::magnitude_mask << lowest);
  const auto to_half = [](HalfInts upper) {
    HalfInts half = upper >> right & mask;
    // The code of all ones is NaN: adding one carries into the exponent's top bit.
    if constexpr (Format::specials == Specials::nan_only) {
      static_assert(right > 0, "the top bit is free");
      half |= (half + std::int16_t{1 << lowest}) & std::int16_t{0x4000};
    }
    return half;
  };
  const auto to_float = [](HalfInts half) {
#if defined(__AVX512F__)
    return FloatLanes(_mm512_cvtph_ps(__m256i(half)));
#else
    return FloatLanes(_mm256_cvtph_ps(__m128i(half)));
#endif
  };
  const HalfInts pairs = load_upper_pairs<Format::bits>(bytes);
  return {to_float(to_half(pairs << Format::bits)), to_float(to_half(pairs))};
}
#endif

// Powers of two that loading leaves to the scales.
template <class Format, bool FitsHalf>
constexpr int scaled_exponent() {
  if constexpr (Format::is_integer) return -Format::mantissa_bits;
  if constexpr (FitsHalf) return 15 - Format::bias;
  return 0;
}

// The exact values of halves in the low bits of the lanes; what is above them is ignored.
[[gnu::always_inline]] inline FloatLanes half_to_float(BitLanes bits) {
  const BitLanes shifted = (bits & 0x7FFFu) << 13;
  const BitLanes exponent = shifted & (0x1Fu << 23);
  const BitLanes rebias = exponent == broadcast<BitLanes>(0x1Fu << 23)
                              ? broadcast<BitLanes>((255u - 31u) << 23)
                              : broadcast<BitLanes>((127u - 15u) << 23);
  const auto subnormal = exponent == broadcast<BitLanes>(0u);
  // As in to_float(float16): a subnormal is read with an implicit one, which is then subtracted.
  const BitLanes implicit = subnormal ? broadcast<BitLanes>(1u << 23) : broadcast<BitLanes>(0u);
  const FloatLanes correction =
      subnormal ? broadcast<FloatLanes>(0x1p-14f) : broadcast<FloatLanes>(0.0f);
  const FloatLanes magnitude = float_of<BitLanes>(shifted + rebias + implicit) - correction;
  return float_of<BitLanes>(bits_of<FloatLanes>(magnitude) | (bits & 0x8000u) << 16);
}

// The elements of a scheme before their scales, times 2^-exponent.
template <class S>
struct StoredElements {
  using Format = typename S::Format;
  static constexpr int bits = Format::bits;
#if defined(__AVX512F__)
  static constexpr bool fits_half = bits == 8 && !Format::is_integer;  // tables have the others
#elif defined(__AVX2__)
  static constexpr bool fits_half = !Format::is_integer;
#else
  static constexpr bool fits_half = false;
#endif
  static constexpr int exponent = scaled_exponent<Format, fits_half>();

  [[gnu::always_inline]] static Pairs load(const std::uint8_t* bytes) {
    if constexpr (fits_half) {
      return load_short_floats<Format>(bytes);
    } else {
      const BitLanes pairs = load_code_pairs<bits>(bytes);
      if constexpr (Format::is_integer) {
        return {sign_extended(pairs << 24), sign_extended(pairs << 16)};
      } else {
        return {decode_codes<Format>(pairs), decode_codes<Format>(pairs >> bits)};
      }
    }
  }

 private:
  // The byte in the upper bits of the lanes, as a number.
  [[gnu::always_inline]] static FloatLanes sign_extended(BitLanes codes) {
    using IntLanes = std::int32_t __attribute__((vector_size(4 * lane_count)));
    return __builtin_convertvector(reinterpret_cast<IntLanes>(codes) >> 24, FloatLanes);
  }
};

template <>
struct StoredElements<bfloat16> {
  static constexpr int bits = 16;

  [[gnu::always_inline]] static Pairs load(const std::uint8_t* bytes) {
    const BitLanes pairs = load_vector<BitLanes>(bytes);
    return {float_of<BitLanes>(pairs << 16), float_of<BitLanes>(pairs & 0xFFFF0000u)};
  }
};

template <>
struct StoredElements<float16> {
  static constexpr int bits = 16;

  [[gnu::always_inline]] static Pairs load(const std::uint8_t* bytes) {
    const BitLanes pairs = load_vector<BitLanes>(bytes);
    return {half_to_float(pairs), half_to_float(pairs >> 16)};
  }
};

template <>
struct StoredElements<float> {
  static constexpr int bits = 32;

  template <std::size_t... I>
  [[gnu::always_inline]] static Pairs separate(FloatLanes a, FloatLanes b,
                                               std::index_sequence<I...>) {
    return {__builtin_shufflevector(a, b, 2 * I...), __builtin_shufflevector(a, b, 2 * I + 1 ...)};
  }

  [[gnu::always_inline]] static Pairs load(const std::uint8_t* bytes) {
    return separate(load_vector<FloatLanes>(bytes),
                    load_vector<FloatLanes>(bytes + sizeof(FloatLanes)),
                    std::make_index_sequence<lane_count>{});
  }
};

// The last elements of a row, zeros after them: a chunk that can be read as a whole. Bits beyond
// the row's last element are dropped, whatever they are.
template <int Bits>
struct ChunkTail {
  std::uint8_t bytes[32 * Bits / 8] = {};

  ChunkTail(const std::uint8_t* stored, int elements) {
    const int whole = elements * Bits / 8;
    const int rest = elements * Bits % 8;
    std::memcpy(bytes, stored, static_cast<std::size_t>(whole));
    if (rest != 0) bytes[whole] = static_cast<std::uint8_t>(stored[whole] & ((1 << rest) - 1));
  }
};

}  // namespace
}  // namespace mxkern::cpu
