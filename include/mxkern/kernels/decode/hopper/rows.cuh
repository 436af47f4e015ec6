// mxkern/kernels/decode/hopper/rows.cuh: four adjacent rows of weights, whose outputs a thread
// finishes for one token after the other.
#pragma once

#include <cstdint>

#include "mxkern/kernels/decode/outputs.cuh"
#include "mxkern/kernels/decode/parameters.h"
#include "mxkern/kernels/decode/output_tile.cuh"
#include "mxkern/kernels/decode/hopper/scales.cuh"
#include "mxkern/kernels/ptx/barrier.cuh"
#include "mxkern/kernels/ptx/pairs.cuh"

namespace mxkern::kernels::few {

// Of the threads that finish: others of the thread block have nothing to do here.
template <int Threads>
__device__ __forceinline__ void sync_threads() {
  ptx::barrier_sync<1, Threads>();
}

__device__ __forceinline__ float4 read_sums(std::uint32_t address) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address));
  return v;
}

template <class K>
__device__ __forceinline__ const ScaleSpread* row_spreads(const DecodeParameters& p,
                                                          const std::uint8_t* weights) {
  const DecodeLayout layout{p.layout.rows, p.layout.columns, K::layout.bits, K::layout.block};
  return reinterpret_cast<const ScaleSpread*>(weights + layout.spreads_offset());
}

// What sums of a row with this top lack: a power of two, which may be subnormal.
template <class K>
__device__ __forceinline__ float factor_of_top(int top) {
  const int exponent = top + HalfScales<typename K::Format>::sum_exponent;
  return float_of(exponent > -127 ? static_cast<std::uint32_t>(exponent + 127) << 23
                                  : 1u << (exponent + 149));
}

// What a wide row's sum lacks: of the products that may not be exact the exact ones, less what the
// tensor cores have multiplied.
template <class K>
__device__ __noinline__ float far_products(const DecodeParameters& p, const std::uint8_t* weights,
                                           const std::uint8_t* x_row, std::int64_t row) {
  using Format = typename K::Format;
  using Scales = HalfScales<Format>;
  const ScaleSpread scales = row_spreads<K>(p, weights)[row];
  const float factor = factor_of_top<K>(scales.top);
  const std::int64_t last = scales.last_far == 65535 ? p.layout.columns : scales.last_far;
  float sum = 0.0f;
  for (std::int64_t block = scales.first_far; block <= last; ++block) {
    for (std::int64_t i = 0; i < DecodeLayout::block_columns; ++i) {
      const std::int64_t column = block * DecodeLayout::block_columns + i;
      if (column >= p.layout.columns) return sum;
      const ReorderedElement element = element_at<K>(p, weights, row, column);
      const int field = element.scale - scales.top + Scales::top_field;
      if (field >= Scales::safe_field) break;
      const float value = decode<Format>(static_cast<std::uint8_t>(element.code));
      const float16 code = from_float<float16>(value * float32::exp2(Scales::code_exponent));
      const std::uint32_t product = ptx::multiply_pair<true>(
          code.bits, static_cast<std::uint32_t>(higher_of(field, 0)) << 10);
      const float there = to_float(float16{static_cast<std::uint16_t>(product)}) * factor;
      const float exact = value * K::Scheme::ScaleFormat::decode(element.scale);
      sum = fmaf(exact - there, token_at<K>(x_row, column), sum);
    }
  }
  return sum;
}

// The product of folded tokens and a row whose scales are too far apart for tensor cores, times a
// fraction and two to the exponent, which the row's top is part of.
template <class K>
__device__ __noinline__ float multiply_wide(const DecodeParameters& p, const std::uint8_t* weights,
                                            const std::uint8_t* x_row, std::int64_t row,
                                            float fraction, int exponent) {
  const int top = row_spreads<K>(p, weights)[row].top;
  double sum = 0.0;
  for (std::int64_t column = 0; column < p.layout.columns; ++column) {
    const ReorderedElement element = element_at<K>(p, weights, row, column);
    const auto code = static_cast<std::uint8_t>(element.code);
    const double weight = ldexp(double{decode<typename K::Format>(code)}, element.scale - top);
    sum = fma(weight, double{token_at<K>(x_row, column)}, sum);
  }
  constexpr int unit = -127 - K::folded_exponent;
  return static_cast<float>(ldexp(sum * fraction, exponent + unit));
}

// What all outputs of a matrix of weights are multiplied by.
template <class K>
__device__ __forceinline__ CommonFactor factor_of(const DecodeParameters& p, std::int64_t batch) {
  return quick_common_factor(p.alpha, p.left_tensor_scale != nullptr ? *p.left_tensor_scale : 1.0f,
                             p.right_tensor_scale != nullptr ? *p.right_tensor_scale : 1.0f,
                             group_factor<K>(p, batch));
}

// What belongs to the rows is read once, and kept here.
template <class K>
struct FourRows {
  const DecodeParameters& p;
  const std::uint8_t* weights;
  std::int64_t batch, first_row;
  int first_token;
  int count;            // see Place
  std::uint32_t kinds;  // a byte each
  CommonFactor factor;
  float bias[4] = {};
  float row_factor[4];  // where rows have tops
  int row_exponent[4];  // the same of folded products, which may be beyond float32

  static constexpr std::uint32_t wide = 3;  // behind RowKind's

  // Of the rows from `row` on. Their sums lack two to their top; wide rows get a kind of their own.
  __device__ __forceinline__ void take_tops(std::int64_t row) {
    if constexpr (has_tops<K>) {
      if (row >= p.layout.rows) return;
      const ScaleSpread* scales = row_spreads<K>(p, weights) + row;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if constexpr (is_folded<K>) {
          // Scales that are large have no kind of their own, as they are relative to the top.
          const auto kind = static_cast<RowKind>(kinds >> (8 * j) & 0xFFu);
          const bool is_wide = kind != RowKind::poisoned && scales[j].octaves > K::most_octaves;
          if (kind == RowKind::special) kinds &= ~(0xFFu << (8 * j));
          if (is_wide) kinds |= wide << (8 * j);
          row_exponent[j] = scales[j].top + K::folded_exponent;
          continue;
        }
        if (scales[j].is_wide != 0 && (kinds >> (8 * j) & 0xFFu) == 0) kinds |= wide << (8 * j);
        row_factor[j] = factor_of_top<K>(scales[j].top);
      }
    }
  }
  // What the sums of the j-th row lack.
  __device__ __forceinline__ float sum_factor_of(int j) const {
    if constexpr (has_tops<K>) {
      return row_factor[j];
    } else {
      return sum_factor<K>();
    }
  }

  // The sums of a token that belong to rows which are not ordinary; `left` rows exist.
  __device__ __forceinline__ void replace_special(float (&value)[4], int token, std::int64_t row,
                                                  std::int64_t left) const {
#pragma unroll 1
    for (int j = 0; j < 4; ++j) {
      const auto kind = static_cast<RowKind>(kinds >> (8 * j) & 0xFFu);
      if (kind == RowKind::ordinary || j >= left) continue;
      float other = float_of(float32::nan_bits);
      bool is_special = kind == RowKind::special;
      if constexpr (has_tops<K>) {
        if (static_cast<std::uint32_t>(kind) == wide) {
#pragma unroll
          for (int k = 0; k < 4; ++k) other = k == j ? value[k] : other;
          // Infinite tokens, and zeros where weights are none.
          is_special = !float32::is_finite(bits_of(other));
          if (!is_special) {
            other += far_products<K>(
                p, weights, p.x + batch * p.x_batch_bytes + (first_token + token) * p.x_row_bytes,
                row + j);
          }
        }
      }
      if (is_special) {
        other = multiply_special<K>(
            p, weights, p.x + batch * p.x_batch_bytes + (first_token + token) * p.x_row_bytes,
            row + j);
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) value[k] = k == j ? other : value[k];
    }
  }

  // From a token's sums to all of its outputs but what is added to them; `left` rows exist.
  template <bool IsPlain>
  __device__ __forceinline__ void finish(float (&value)[4], int token, std::int64_t row,
                                         std::int64_t left) const {
    if constexpr (is_folded<K>) {
      const int exponent = exponent_of(p, batch, first_token + token, factor);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        value[j] = times_power(value[j], factor.fraction, exponent + row_exponent[j]);
        if (IsPlain || j >= left || (kinds >> (8 * j) & 0xFFu) == 0) continue;
        value[j] = float_of(float32::nan_bits);
        if ((kinds >> (8 * j) & 0xFFu) != wide) continue;
        value[j] = multiply_wide<K>(
            p, weights, p.x + (first_token + token) * p.x_row_bytes + batch * p.x_batch_bytes,
            row + j, factor.fraction,
            exponent + row_exponent[j] + (K::scales_sums ? 0 : far_exponent));
      }
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) value[j] *= sum_factor_of(j);
      if constexpr (!IsPlain) replace_special(value, token, row, left);
      scale_four(p, batch, first_token + token, factor, value);
    }
  }
};

}  // namespace mxkern::kernels::few
