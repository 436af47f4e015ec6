// cpu/gemm/elements.h: stored elements to float32 lanes, those of even and of odd k apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "cpu/kernels/bfloat16_pairs.h"
#include "cpu/kernels/code_pairs.h"
#include "cpu/kernels/decode_codes.h"
#include "cpu/kernels/lanes_memory.h"
#include "cpu/kernels/short_floats.h"
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

// Powers of two that loading leaves to the scales.
template <class Format>
constexpr int scaled_exponent() {
  if constexpr (Format::is_integer) return -Format::mantissa_bits;
  if constexpr (are_short_floats<Format>) return short_float_exponent<Format>;
  return 0;
}

// Pairs of bfloat16, even elements in the low half. Drops the lower halves of the float32.
[[gnu::always_inline]] inline BitLanes join(FloatPairs pairs) {
  return bits_of(pairs.even) >> 16 | (bits_of(pairs.odd) & 0xFFFF0000u);
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
  static constexpr int exponent = scaled_exponent<Format>();

  [[gnu::always_inline]] static FloatPairs load(const std::uint8_t* bytes) {
    if constexpr (are_short_floats<Format>) {
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

  [[gnu::always_inline]] static FloatPairs load(const std::uint8_t* bytes) {
    const BitLanes pairs = load_vector<BitLanes>(bytes);
    return {float_of<BitLanes>(pairs << 16), float_of<BitLanes>(pairs & 0xFFFF0000u)};
  }
};

template <>
struct StoredElements<float16> {
  static constexpr int bits = 16;

  [[gnu::always_inline]] static FloatPairs load(const std::uint8_t* bytes) {
    const BitLanes pairs = load_vector<BitLanes>(bytes);
    return {half_to_float(pairs), half_to_float(pairs >> 16)};
  }
};

template <>
struct StoredElements<float> {
  static constexpr int bits = 32;

  template <std::size_t... I>
  [[gnu::always_inline]] static FloatPairs separate(FloatLanes a, FloatLanes b,
                                                    std::index_sequence<I...>) {
    return {__builtin_shufflevector(a, b, 2 * I...), __builtin_shufflevector(a, b, 2 * I + 1 ...)};
  }

  [[gnu::always_inline]] static FloatPairs load(const std::uint8_t* bytes) {
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
