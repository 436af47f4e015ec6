// cpu/gemm/elements.h: stored elements to float32 lanes, those of even and of odd k apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

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

template <class Stored>
[[gnu::always_inline]] inline BitLanes widen(const std::uint8_t* bytes) {
  return __builtin_convertvector(load_vector<Stored>(bytes), BitLanes);
}

// A lane's even code in the low bits, its odd code right above; what is above both is arbitrary.
template <int Bits>
[[gnu::always_inline]] inline BitLanes load_code_pairs(const std::uint8_t* bytes) {
  if constexpr (Bits == 8) {
    return widen<HalfLanes>(bytes);
  } else if constexpr (Bits == 4) {
    return widen<ByteLanes>(bytes);
  } else {
    static_assert(Bits == 6, "4-, 6- and 8-bit codes exist");
#if defined(__AVX512F__)
    // Three bytes hold two pairs: lanes 2i and 2i + 1 read bytes 3i.. and 3i + 1.., and the odd
    // lane drops the four bits that belong to its neighbour.
    const __m512i packed = _mm512_castsi256_si512(_mm256_maskz_loadu_epi8(0x00FFFFFFu, bytes));
    const __m512i index =
        _mm512_set_epi32(0x17161716, 0x16151615, 0x14131413, 0x13121312, 0x11101110, 0x100F100F,
                         0x0E0D0E0D, 0x0D0C0D0C, 0x0B0A0B0A, 0x0A090A09, 0x08070807, 0x07060706,
                         0x05040504, 0x04030403, 0x02010201, 0x01000100);
    const __m512i spread = _mm512_permutexvar_epi8(index, packed);
    return (BitLanes)_mm512_srlv_epi32(spread, _mm512_set1_epi64(0x0000000400000000));
#elif defined(__AVX2__)
    const __m128i low = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes));
    const __m128i high = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes + 4));
    const __m256i index = _mm256_set_epi32(0x07060706, 0x06050605, 0x04030403, 0x03020302,
                                           0x05040504, 0x04030403, 0x02010201, 0x01000100);
    const __m256i spread = _mm256_shuffle_epi8(_mm256_set_m128i(high, low), index);
    return (BitLanes)_mm256_srlv_epi32(spread, _mm256_set1_epi64x(0x0000000400000000));
#else
    BitLanes pairs;
    for (int i = 0; i < lane_count / 2; ++i) {
      const std::uint32_t word =
          bytes[3 * i] | bytes[3 * i + 1] << 8 | static_cast<std::uint32_t>(bytes[3 * i + 2]) << 16;
      pairs[2 * i] = word;
      pairs[2 * i + 1] = word >> 12;
    }
    return pairs;
#endif
  }
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

// The elements of a scheme, before their scales.
template <class S>
struct StoredElements {
  static constexpr int bits = S::Format::bits;

  [[gnu::always_inline]] static Pairs load(const std::uint8_t* bytes) {
    const BitLanes pairs = load_code_pairs<bits>(bytes);
    return {decode_lanes<typename S::Format>(pairs),
            decode_lanes<typename S::Format>(pairs >> bits)};
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
