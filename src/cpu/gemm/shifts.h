// cpu/gemm/shifts.h: scales relative to the largest of their row, as float32 multipliers.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cpu/gemm/elements.h"
#include "cpu/gemm/kernels.h"
#include "cpu/gemm/scale_row.h"
#include "mxkern/numerics/scale_format.h"

namespace mxkern::cpu {
namespace {

// Largest elements are brought just below 2^28: a sum of 2^31 products stays below 2^87, and what
// is 100 powers of two below the largest scale of its row is still a normal bfloat16. Units that
// take subnormal numbers for zero lose products below 2^-126, 182 powers of two below the largest.
inline constexpr int top_exponent = 28;

// The longest panel along K.
inline constexpr int max_depth = 1024;

// A block whose relative scale is below 2^-100 counts as zero; cpu/gemm/exact_sum.h says what
// becomes of sums that consist of such.
inline constexpr int lowest_field = float32::bias - 100;

// Of a row: its largest scale, or the exponent field of its largest element; and how many octaves
// the others lie below it at most.
struct RowRange {
  int largest;
  int spread;
};

// From float32's smallest number to its largest.
inline constexpr int widest_spread = 277;

// Of E8M0 bytes that are not NaN; 0 where there are none. The scales of zeros count, too.
[[gnu::always_inline]] inline RowRange scale_range(const GemmMatrix& matrix, std::int64_t row) {
  const ScaleRow scales(matrix, row);
  const std::int64_t blocks = matrix.scale_index.blocks;
  std::uint8_t largest = 0, smallest = 0xFF;  // of byte + 1, which makes NaN the smallest
  const auto visit_run = [&](const std::uint8_t* bytes, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint8_t next = static_cast<std::uint8_t>(bytes[i] + 1);
      largest = next > largest ? next : largest;
      smallest = next < smallest ? next : smallest;
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
  if (largest == 0) return {0, 0};
  return {largest - 1, largest - smallest};
}

// Of the finite elements of a row of a plain matrix; at least 1.
template <class T>
[[gnu::always_inline]] inline RowRange element_range(const GemmMatrix& matrix, std::int64_t row) {
  constexpr std::uint32_t smallest_normal = 1u << float32::mantissa_bits;
  const T* data = reinterpret_cast<const T*>(matrix.data + row * matrix.row_bytes);
  BitLanes largest = broadcast<BitLanes>(smallest_normal);
  BitLanes highest = broadcast<BitLanes>(0u);
  BitLanes lowest = broadcast<BitLanes>(~0u);  // less 1, which takes zeros out of the way
  const auto include = [&](FloatLanes values) {
    const BitLanes magnitude = bits_of(values) & float32::magnitude_mask;
    const BitLanes finite = magnitude < broadcast<BitLanes>(float32::infinity_bits)
                                ? magnitude
                                : broadcast<BitLanes>(0u);
    largest = higher_of<BitLanes>(largest, finite);
    highest = higher_of<BitLanes>(highest, magnitude);
    lowest = lower_of<BitLanes>(lowest, magnitude - 1u);
  };
  std::int64_t k = 0;
  for (; k + lane_count <= matrix.k; k += lane_count) include(load_lanes(data + k));
  T rest[lane_count] = {};
  copy_elements(rest, data + k, matrix.k - k);
  include(load_lanes(rest));
  std::uint32_t top = 0, any = 0, bottom = ~0u;
  for (int i = 0; i < lane_count; ++i) {
    top = higher_of<std::uint32_t>(top, largest[i]);
    any = higher_of<std::uint32_t>(any, highest[i]);
    bottom = lower_of<std::uint32_t>(bottom, lowest[i]);
  }
  const int field = static_cast<int>(float32::exponent_field(top));
  if (any == 0) return {field, 0};
  if (any >= float32::infinity_bits || bottom + 1 < smallest_normal) return {field, widest_spread};
  return {field, field - static_cast<int>(float32::exponent_field(bottom + 1))};
}

// What a row is multiplied with, as a power of two, and how far it spreads.
struct RowShift {
  std::int32_t shift;
  std::int32_t spread;
};

template <class Elements>
[[gnu::always_inline]] inline RowShift row_shift(const GemmMatrix& matrix, std::int64_t row) {
  if constexpr (std::is_same_v<Elements, float16>) {
    return {0, 40};  // 2^-24 to 2^16: needs no shift, and spreads no further
  } else if constexpr (std::is_same_v<Elements, float> || std::is_same_v<Elements, bfloat16>) {
    const RowRange range = element_range<Elements>(matrix, row);
    const int shift = top_exponent + float32::bias - 1 - range.largest;
    return {shift < float32::bias ? shift : float32::bias, range.spread};
  } else if constexpr (!Elements::ScaleFormat::is_power_of_two) {
    return {0, 0};  // codes times such scales need no shift; with UE4M3 they span 2^-10 to 2^12
  } else {
    const RowRange range = scale_range(matrix, row);
    const int top = top_exponent - (Elements::Format::max_exponent + 1);
    return {top + E8M0::bias - range.largest, range.spread};
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
  static constexpr int chunk_blocks = higher_of(gemm_chunk / S::block, 1);
  static constexpr int block_chunks = higher_of(S::block / gemm_chunk, 1);
  static constexpr int most = max_depth / gemm_chunk * chunk_blocks / block_chunks;
  float values[most + lane_count];

  RowMultipliers(const GemmMatrix& matrix, std::int64_t row, std::int64_t k, int chunks,
                 std::int32_t shift) {
    const std::int64_t block = k / S::block;
    const int wanted = (chunks * chunk_blocks + block_chunks - 1) / block_chunks;
    const std::int64_t rest = matrix.scale_index.blocks - block;
    const ScaleRow scales(matrix, row);
    const std::uint8_t* run = scales.run(block);
    if (run != nullptr && wanted % lane_count == 0 && rest >= wanted) {
      decode_run(run, wanted, shift);
      return;
    }
    // Scales beyond K are zeros, whatever lies there: elements beyond K must not become NaN.
    std::uint8_t bytes[most + lane_count];
    const int count = rest < wanted ? static_cast<int>(rest) : wanted;
    scales.copy(block, count, bytes);
    std::memset(bytes + count, 0, sizeof(bytes) - static_cast<std::size_t>(count));
    decode_run(bytes, wanted, shift);
  }

  [[gnu::always_inline]] void decode_run(const std::uint8_t* bytes, int count, std::int32_t shift) {
    for (int i = 0; i < count; i += lane_count) {
      const FloatLanes lanes = decode(widen_bytes(bytes + i), shift);
      std::memcpy(values + i, &lanes, sizeof(lanes));
    }
  }

  [[gnu::always_inline]] static FloatLanes decode(BitLanes bytes, std::int32_t shift) {
    if constexpr (!S::ScaleFormat::is_power_of_two) {
      return decode_lanes<typename S::ScaleFormat::Element>(
                 bytes & std::uint32_t{S::ScaleFormat::nan_byte}) *
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
    const float* scales = values + chunk * chunk_blocks / block_chunks + first / S::block;
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
