// cpu/gemm/shifts.h: scales relative to the largest of their row, as float32 multipliers.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cpu/gemm/elements.h"
#include "cpu/gemm/kernels.h"
#include "mxkern/numerics/scale_format.h"

namespace mxkern::cpu {
namespace {

// Largest elements are brought just below 2^28: a sum of 2^31 products stays below 2^87, and what
// is 100 powers of two below the largest scale of its row is still a normal bfloat16. Units that
// take subnormal numbers for zero lose products below 2^-126, 182 powers of two below the largest.
inline constexpr int top_exponent = 28;

// The longest panel along K.
inline constexpr int max_depth = 1024;

// A block whose relative scale is below 2^-100 counts as zero; cpu/exact_sum.h says what becomes of
// sums that consist of such.
inline constexpr int lowest_field = float32::bias - 100;

// Walks the scales of a row: row_major one after the other, swizzled in groups of four.
struct ScaleRow {
  const std::uint8_t* first;
  std::int64_t group_stride;

  ScaleRow(const GemmMatrix& matrix, std::int64_t row)
      : first(matrix.scales + matrix.scale_index.offset(row, 0)),
        group_stride(matrix.scale_index.layout == ScaleLayout::row_major ? ScaleIndex::tile_blocks
                                                                         : ScaleIndex::tile_bytes) {
  }

  const std::uint8_t* group(std::int64_t block) const {
    return first + block / ScaleIndex::tile_blocks * group_stride;
  }

  // `count` scales from `block` on, which starts a group.
  void copy(std::int64_t block, int count, std::uint8_t* out) const {
    if (group_stride == ScaleIndex::tile_blocks) {
      std::memcpy(out, first + block, static_cast<std::size_t>(count));
      return;
    }
    for (int i = 0; i < count; i += ScaleIndex::tile_blocks) {
      std::memcpy(out + i, group(block + i), ScaleIndex::tile_blocks);
    }
  }
};

// The largest E8M0 byte of a row that is not NaN; 0 where there is none.
[[gnu::always_inline]] inline int largest_scale(const GemmMatrix& matrix, std::int64_t row) {
  const ScaleRow scales(matrix, row);
  const std::int64_t blocks = matrix.scale_index.blocks;
  std::uint8_t largest = 0;  // of byte + 1, which makes NaN the smallest
  const auto visit_run = [&](const std::uint8_t* bytes, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint8_t next = static_cast<std::uint8_t>(bytes[i] + 1);
      largest = next > largest ? next : largest;
    }
  };
  if (matrix.scale_index.layout == ScaleLayout::row_major) {
    visit_run(scales.first, blocks);
  } else {
    for (std::int64_t block = 0; block < blocks; block += ScaleIndex::tile_blocks) {
      const std::int64_t rest = blocks - block;
      visit_run(scales.group(block),
                rest < ScaleIndex::tile_blocks ? rest : ScaleIndex::tile_blocks);
    }
  }
  return largest == 0 ? 0 : largest - 1;
}

// The largest exponent field among the finite elements of a row of a plain matrix, at least 1.
template <class T>
[[gnu::always_inline]] inline int largest_exponent(const GemmMatrix& matrix, std::int64_t row) {
  const T* data = reinterpret_cast<const T*>(matrix.data + row * matrix.row_bytes);
  BitLanes largest = broadcast<BitLanes>(1u << float32::mantissa_bits);
  const auto include = [&largest](FloatLanes values) {
    const BitLanes magnitude = bits_of(values) & float32::magnitude_mask;
    const BitLanes finite = magnitude < broadcast<BitLanes>(float32::infinity_bits)
                                ? magnitude
                                : broadcast<BitLanes>(0u);
    largest = higher_of<BitLanes>(largest, finite);
  };
  std::int64_t k = 0;
  for (; k + lane_count <= matrix.k; k += lane_count) include(load_lanes(data + k));
  T rest[lane_count] = {};
  copy_elements(rest, data + k, matrix.k - k);
  include(load_lanes(rest));
  std::uint32_t bits = 0;
  for (int i = 0; i < lane_count; ++i) bits = higher_of<std::uint32_t>(bits, largest[i]);
  return static_cast<int>(float32::exponent_field(bits));
}

template <class Elements>
[[gnu::always_inline]] inline std::int32_t row_shift(const GemmMatrix& matrix, std::int64_t row) {
  if constexpr (std::is_same_v<Elements, float16>) {
    return 0;  // 2^-24 to 2^16 needs no shift
  } else if constexpr (std::is_same_v<Elements, float> || std::is_same_v<Elements, bfloat16>) {
    const int shift = top_exponent + float32::bias - 1 - largest_exponent<Elements>(matrix, row);
    return shift < float32::bias ? shift : float32::bias;
  } else if constexpr (Elements::has_tensor_scale) {
    return 0;  // codes times UE4M3 scales span 2^-10 to 2^12
  } else {
    const int top = top_exponent - (Elements::Format::max_exponent + 1);
    return top + E8M0::bias - largest_scale(matrix, row);
  }
}

// What the elements of a row's chunks are multiplied with.
template <class Elements>
struct RowMultipliers {
  float value;

  RowMultipliers(const GemmMatrix&, std::int64_t, std::int64_t, int, std::int32_t shift)
      : value(float32::exp2(shift)) {}

  [[gnu::always_inline]] FloatLanes of(int, int) const { return broadcast<FloatLanes>(value); }
};

template <class S>
requires requires { S::block; }
struct RowMultipliers<S> {
  using IntLanes = std::int32_t __attribute__((vector_size(4 * lane_count)));
  static constexpr int per_chunk = gemm_chunk / S::block;
  static constexpr int most = max_depth / gemm_chunk * per_chunk;
  float values[most + lane_count];

  RowMultipliers(const GemmMatrix& matrix, std::int64_t row, std::int64_t k, int chunks,
                 std::int32_t shift) {
    std::uint8_t bytes[most + lane_count];
    const std::int64_t block = k / S::block;
    const int wanted = chunks * per_chunk;
    const std::int64_t rest = matrix.scale_index.blocks - block;
    const int count = rest < wanted ? static_cast<int>(rest) : wanted;
    // Scales beyond K are zeros, whatever lies there: elements beyond K must not become NaN.
    ScaleRow(matrix, row).copy(block, count, bytes);
    std::memset(bytes + count, 0, sizeof(bytes) - static_cast<std::size_t>(count));
    for (int i = 0; i < wanted; i += lane_count) {
      const FloatLanes lanes = decode(widen_bytes(bytes + i), shift);
      std::memcpy(values + i, &lanes, sizeof(lanes));
    }
  }

  [[gnu::always_inline]] static FloatLanes decode(BitLanes bytes, std::int32_t shift) {
    if constexpr (S::has_tensor_scale) {
      return decode_lanes<E4M3>(bytes & static_cast<std::uint32_t>(UE4M3::nan_byte)) *
             float32::exp2(StoredElements<S>::exponent);
    } else {
      const IntLanes field =
          reinterpret_cast<IntLanes>(bytes) + shift + StoredElements<S>::exponent;
      const BitLanes scale = field < lowest_field
                                 ? broadcast<BitLanes>(0u)
                                 : reinterpret_cast<BitLanes>(field) << float32::mantissa_bits;
      return float_of<BitLanes>(bytes == broadcast<BitLanes>(std::uint32_t{E8M0::nan_byte})
                                    ? broadcast<BitLanes>(float32::nan_bits)
                                    : scale);
    }
  }

  [[gnu::always_inline]] static IntLanes in_lower_half() {
    IntLanes lanes{};
    for (int i = 0; i < lane_count / 2; ++i) lanes[i] = -1;
    return lanes;
  }

  // For the elements of one step of a chunk.
  [[gnu::always_inline]] FloatLanes of(int chunk, int first) const {
    const float* scales = values + chunk * per_chunk + first / S::block;
    if constexpr (S::block >= step) {
      return broadcast<FloatLanes>(scales[0]);
    } else {
      static_assert(2 * S::block == step, "a step holds at most two blocks");
      return in_lower_half() ? broadcast<FloatLanes>(scales[0]) : broadcast<FloatLanes>(scales[1]);
    }
  }
};

}  // namespace
}  // namespace mxkern::cpu
