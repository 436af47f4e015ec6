// cpu/gemm/finish.h: a tile of sums to the output: scales, bias, beta, one rounding. And whether
// its sums are large enough for that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "cpu/gemm/kernels.h"
#include "cpu/kernels/lanes_memory.h"

namespace mxkern::cpu {
namespace {

using IntLanes = std::int32_t __attribute__((vector_size(4 * lane_count)));

// 2^exponent in two factors, neither of which over- or underflows. A sum is below 2^87 and at
// least 2^-149: beyond these limits the result is 0 or Inf either way.
[[gnu::always_inline]] inline FloatLanes scale_sums(FloatLanes sums, IntLanes exponents) {
  constexpr int lowest = 2 * (1 - float32::bias);
  constexpr int highest = 2 * float32::bias;
  const IntLanes raised = exponents < lowest ? broadcast<IntLanes>(lowest) : exponents;
  const IntLanes clamped = raised > highest ? broadcast<IntLanes>(highest) : raised;
  const IntLanes half = clamped >> 1;
  const auto power = [](IntLanes exponent) {
    return float_of<BitLanes>(reinterpret_cast<BitLanes>(exponent + float32::bias)
                              << float32::mantissa_bits);
  };
  return sums * power(half) * power(clamped - half);
}

// A row of a tile that is two vectors wide; `out` has room for all of it.
template <class T>
[[gnu::always_inline]] inline void finish_row(const GemmFinish& finish, const float* sums,
                                              std::int32_t exponent,
                                              const std::int32_t* right_shifts, const float* bias,
                                              T* out) {
  for (int j = 0; j < 2 * lane_count; j += lane_count) {
    // Unsigned, as lanes behind the last column hold anything, and wrap.
    const BitLanes differences =
        static_cast<std::uint32_t>(exponent) - load_vector<BitLanes>(right_shifts + j);
    const auto exponents = reinterpret_cast<IntLanes>(differences);
    FloatLanes value = scale_sums(load_lanes(sums + j) * finish.factor, exponents);
    if (bias != nullptr) value += load_lanes(bias + j);
    if (finish.beta != 0.0f) value += finish.beta * load_lanes(out + j);
    store_lanes(out + j, with_one_nan(value));
  }
}

template <class T>
[[gnu::always_inline]] inline void finish_rows(const GemmFinish& finish, const float* sums,
                                               int rows, int columns,
                                               const std::int32_t* left_shifts,
                                               const std::int32_t* right_shifts, const float* bias,
                                               T* out) {
  constexpr int tile_columns = 2 * lane_count;
  for (int i = 0; i < rows; ++i) {
    const std::int32_t exponent = finish.exponent - left_shifts[i];
    if (columns == tile_columns) {
      finish_row(finish, sums, exponent, right_shifts, bias, out);
    } else {
      T edge[tile_columns] = {};
      if (finish.beta != 0.0f) copy_elements(edge, out, columns);
      finish_row(finish, sums, exponent, right_shifts, bias, edge);
      copy_elements(out, edge, columns);
    }
    sums += tile_columns;
    out += finish.row_stride;
  }
}

template <std::size_t... I>
constexpr IntLanes lane_indices(std::index_sequence<I...>) {
  return IntLanes{static_cast<std::int32_t>(I)...};
}

bool tile_is_at_least(float least, const float* sums, int rows, int columns) {
  constexpr int tile_columns = 2 * lane_count;
  const std::uint32_t least_bits = bits_of(least);
  BitLanes outside = broadcast<BitLanes>(0u);
  for (int j = 0; j < tile_columns; j += lane_count) {
    // Wraps for what is below, and is too large for a NaN.
    BitLanes furthest = broadcast<BitLanes>(0u);
    for (int i = 0; i < rows; ++i) {
      const BitLanes bits = load_vector<BitLanes>(sums + i * tile_columns + j);
      furthest = higher_of<BitLanes>(furthest, (bits & float32::magnitude_mask) - least_bits);
    }
    constexpr IntLanes lane = lane_indices(std::make_index_sequence<lane_count>{});
    outside |= lane < columns - j && furthest > float32::infinity_bits - least_bits
                   ? broadcast<BitLanes>(~0u)
                   : broadcast<BitLanes>(0u);
  }
  std::uint32_t any = 0;
  for (int i = 0; i < lane_count; ++i) any |= outside[i];
  return any == 0;
}

void finish_tile(const GemmFinish& finish, const float* sums, int rows, int columns,
                 const std::int32_t* left_shifts, const std::int32_t* right_shifts,
                 const float* bias, void* out) {
  visit(finish.dtype, [&]<class T>(TypeTag<T>) {
    finish_rows(finish, sums, rows, columns, left_shifts, right_shifts, bias, static_cast<T*>(out));
  });
}

}  // namespace
}  // namespace mxkern::cpu
