// mxkern/kernels/any/values.cuh: codes of schemes that are known at run time back to values, and
// elements rounded to a format.
#pragma once

#include <cstdint>

#include "mxkern/kernels/any/quantize.cuh"

namespace mxkern::kernels {

__device__ __forceinline__ std::uint32_t any_load_code(const std::uint8_t* row, int bits,
                                                       std::int64_t column) {
  if (bits == 8) return row[column];
  if (bits == 16) return reinterpret_cast<const std::uint16_t*>(row)[column];
  const std::int64_t at = column * bits;
  const int shift = static_cast<int>(at % 8);
  std::uint32_t word = row[at / 8];
  if (shift + bits > 8) word |= std::uint32_t{row[at / 8 + 1]} << 8;
  return word >> shift & ((1u << bits) - 1u);
}

// Eight elements of a row a thread.
template <class T>
__global__ void __launch_bounds__(any_threads)
    any_decode_kernel(const __grid_constant__ AnyDecodeParameters<AnyWordOf<T>> p) {
  using Word = AnyWordOf<T>;
  using Float = AnyFloatOf<T>;
  const int bits = p.scheme.element.stored_bits(), scale_bits = p.scheme.scale.stored_bits();
  const std::int64_t row_bytes = p.scheme.code_row_bytes(p.shape.columns);
  const std::int64_t threads_of_row = ceil_div(p.shape.columns, any_elements);
  const std::int64_t total = p.shape.batch * p.shape.rows * threads_of_row;
  const ScaleIndex index = p.scheme.scale_index(p.shape, p.layout);
  const bool is_whole = p.scheme.is_whole_tensor();
  for (std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * any_threads + threadIdx.x;
       thread < total; thread += static_cast<std::int64_t>(gridDim.x) * any_threads) {
    const std::int64_t line = thread / threads_of_row;
    const std::int64_t batch = line / p.shape.rows, row = line % p.shape.rows;
    const std::int64_t column = thread % threads_of_row * any_elements;
    const std::int64_t left = p.shape.columns - column;
    const int count = static_cast<int>(left < any_elements ? left : any_elements);
    const std::uint8_t* const codes = p.codes + line * row_bytes;
    T* const out = any_at<T>(p.out, batch, row, column);
    const float tensor_scale =
        !p.scheme.has_tensor_scale()
            ? 1.0f
            : p.tensor_scale[p.scheme.tensor_scales == TensorScales::row ? line : 0];
    Float scale = 0;
    std::int64_t end = column;
    for (int i = 0; i < count; ++i) {
      if (column + i >= end) {
        const std::int64_t block = is_whole ? 0 : (column + i) / p.block;
        const std::int64_t at =
            is_whole ? 0 : batch * index.size() + index.offset(row / p.scheme.block_rows, block);
        scale = static_cast<Float>(p.scheme.scale.decode(any_load_scale(p.scales, scale_bits, at)));
        end = is_whole ? p.shape.columns : (block + 1) * p.block;
      }
      const Word code = any_load_code(codes, bits, column + i);
      const Float value = decode_any<Word>(p.decoder, code) * scale;
      out[i] = any_stored<T>(p.scheme.has_tensor_scale() ? value * static_cast<Float>(tensor_scale)
                                                         : value);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(any_threads)
    any_round_kernel(const __grid_constant__ AnyRoundParameters<AnyWordOf<T>> p) {
  using Word = AnyWordOf<T>;
  using Float = AnyFloatOf<T>;
  const std::int64_t total = p.shape.batch * p.shape.rows * p.shape.columns;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * any_threads + threadIdx.x;
       i < total; i += static_cast<std::int64_t>(gridDim.x) * any_threads) {
    const std::int64_t line = i / p.shape.columns, column = i % p.shape.columns;
    const std::int64_t batch = line / p.shape.rows, row = line % p.shape.rows;
    const Float x = any_load(*any_at<const T>(p.x, batch, row, column));
    const Word random =
        p.is_stochastic ? philox_word(p.seed, p.offset, static_cast<std::uint64_t>(i)) : 0u;
    const Float rounded = any_rounded(p.way, p.decoder, x, random);
    *any_at<T>(p.out, batch, row, column) = any_stored<T>(x == x ? rounded : x);
  }
}

}  // namespace mxkern::kernels
