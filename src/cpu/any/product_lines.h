// cpu/any/product_lines.h: rows of products of float32 numbers, summed in float32 or with every
// partial sum rounded to a format. Only files in cpu/instances/ may include it.
#pragma once

#include "cpu/any/lanes.h"
#include "cpu/any/kernels.h"

namespace mxkern::cpu {
namespace {

// Registers of sums side by side: each waits for the one before it in k.
inline constexpr int sum_registers = 4;

template <class Rounded>
[[gnu::always_inline]] inline void accumulate_with(const float* a, const float* b, std::int64_t k,
                                                   std::int64_t stride, std::int64_t count,
                                                   double* sums, Rounded&& rounded) {
  using Singles = float __attribute__((vector_size(4 * double_count)));
  const auto columns = [&](std::int64_t n, auto registers) {
    DoubleLanes sum[registers()];
    for (int r = 0; r < registers(); ++r) sum[r] = load_lanes(sums + n + r * double_count);
    for (std::int64_t i = 0; i < k; ++i) {
      for (int r = 0; r < registers(); ++r) {
        const float* row = b + i * stride + n + r * double_count;
        const DoubleLanes factor = __builtin_convertvector(load_vector<Singles>(row), DoubleLanes);
        const DoubleLanes exact = sum[r] + factor * static_cast<double>(a[i]);
        sum[r] = exact == exact ? rounded(exact) : exact;
      }
    }
    for (int r = 0; r < registers(); ++r) {
      store_vector(sums + n + r * double_count, with_one_nan(sum[r]));
    }
  };
  std::int64_t n = 0;
  for (; n + sum_registers * double_count <= count; n += sum_registers * double_count) {
    columns(n, std::integral_constant<int, sum_registers>{});
  }
  for (; n < count; n += double_count) columns(n, std::integral_constant<int, 1>{});
}

void any_accumulate(const float* a, const float* b, std::int64_t k, std::int64_t stride,
                    std::int64_t count, const AnyWay<std::uint64_t>& way,
                    const AnyDecoder<std::uint64_t>& given_decoder, double* sums) {
  if (way.is_nearest) {
    const NearestEncoder<std::uint64_t> encoder = way.nearest;
    return accumulate_with(a, b, k, stride, count, sums, [&](DoubleLanes exact) {
      return mxkern::round_any<DoubleLanes>(encoder, exact);
    });
  }
  const AnyEncoder<std::uint64_t> encoder = way.encoder;
  const AnyDecoder<std::uint64_t> decoder = given_decoder;
  accumulate_with(a, b, k, stride, count, sums, [&](DoubleLanes exact) {
    return decode_any<LongLanes>(decoder, encode_any<DoubleLanes>(encoder, exact, LongLanes{}));
  });
}

template <int rows>
[[gnu::always_inline]] inline void multiply_rows(const float* a, std::int64_t a_stride,
                                                 const float* b, std::int64_t k,
                                                 std::int64_t stride, std::int64_t count,
                                                 float* sums, std::int64_t sum_stride) {
  const auto columns = [&](std::int64_t n, auto registers) {
    FloatLanes sum[rows][registers()];
    for (int row = 0; row < rows; ++row) {
      for (int r = 0; r < registers(); ++r)
        sum[row][r] = load_lanes(sums + row * sum_stride + n + r * lane_count);
    }
    for (std::int64_t i = 0; i < k; ++i) {
      FloatLanes factor[registers()];
      for (int r = 0; r < registers(); ++r)
        factor[r] = load_lanes(b + i * stride + n + r * lane_count);
      for (int row = 0; row < rows; ++row) {
        const float left = a[row * a_stride + i];
        for (int r = 0; r < registers(); ++r) sum[row][r] = sum[row][r] + factor[r] * left;
      }
    }
    for (int row = 0; row < rows; ++row) {
      for (int r = 0; r < registers(); ++r)
        store_lanes(sums + row * sum_stride + n + r * lane_count, sum[row][r]);
    }
  };
  std::int64_t n = 0;
  for (; n + 2 * lane_count <= count; n += 2 * lane_count) {
    columns(n, std::integral_constant<int, 2>{});
  }
  for (; n < count; n += lane_count) columns(n, std::integral_constant<int, 1>{});
}

// count is a multiple of 16.
void any_multiply(const float* a, std::int64_t a_stride, int rows, const float* b, std::int64_t k,
                  std::int64_t stride, std::int64_t count, float* sums, std::int64_t sum_stride) {
  if (rows == 4) return multiply_rows<4>(a, a_stride, b, k, stride, count, sums, sum_stride);
  for (int row = 0; row < rows; ++row) {
    multiply_rows<1>(a + row * a_stride, a_stride, b, k, stride, count, sums + row * sum_stride,
                     sum_stride);
  }
}

}  // namespace
}  // namespace mxkern::cpu
