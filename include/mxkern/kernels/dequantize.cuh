// mxkern/kernels/dequantize.cuh: codes and scales to elements, an octet a thread and row.
#pragma once

#include <cstdint>

#include "mxkern/kernels/row_grid.cuh"
#include "mxkern/kernels/vector_io.cuh"
#include "mxkern/numerics/block_scale.h"
#include "mxkern/tensor/scale_layout.h"

namespace mxkern::kernels {

struct DequantizeParameters {
  RowGrid grid;
  const std::uint8_t* codes;
  std::int64_t code_row_bytes;
  const std::uint8_t* scales;
  ScaleIndex scale_index;
  const float* tensor_scale;
  void* out;
  std::int64_t columns;
  std::int64_t batch_stride, row_stride;
  bool vector_loads;   // every octet of codes starts on its own size (6 bits an element: on 2)
  bool vector_stores;  // every octet of out starts on 16 bytes
};

// The value of a scale byte.
template <class S>
__device__ __forceinline__ float fast_scale(std::uint8_t byte) {
#if MXKERN_HAS_CVT_E4M3
  if constexpr (S::has_tensor_scale) {
    const float value = ptx::widen_pair<E4M3>(byte & UE4M3::nan_byte).x;
    return value == value ? value : float_of(float32::nan_bits);
  }
#endif
  return S::ScaleFormat::decode(byte);
}

// Eight values under one scale, in T. Every NaN that comes out is the same one.
template <class S, class T>
__device__ __forceinline__ RawOctet<T> dequantize_octet(Octet octet, std::uint8_t byte,
                                                        float tensor_scale) {
  using Format = typename S::Format;
  const float scale = fast_scale<S>(byte);
  float v[8];
  decode_octet<Format>(octet, v);
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    v[k] = __fmul_rn(v[k], scale);
    if constexpr (S::has_tensor_scale) v[k] = __fmul_rn(v[k], tensor_scale);
  }
  const bool nan_is_rare = scale == scale && !has_nan_code<Format>(octet) &&
                           (!S::has_tensor_scale || float32::is_finite(bits_of(tensor_scale)));
  if (nan_is_rare) return pack<T>(v);
  RawOctet<T> raw = {};
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    set_element(raw, k, from_float<T>(v[k] == v[k] ? v[k] : float_of(float32::nan_bits)));
  }
  return raw;
}

template <class S, class T>
__global__ void __launch_bounds__(row_threads)
    dequantize_kernel(const __grid_constant__ DequantizeParameters p) {
  constexpr int octet_bytes = S::Format::bits;
  float tensor_scale = 1.0f;
  if constexpr (S::has_tensor_scale) tensor_scale = *p.tensor_scale;
  const int across = 1 << p.grid.log2_across;
  const std::int64_t octet_index =
      static_cast<std::int64_t>(blockIdx.x) * across + (threadIdx.x & (across - 1));
  const std::int64_t column = octet_index * 8;
  const std::int64_t start = octet_index * octet_bytes;
  const bool whole_columns = p.vector_loads && p.vector_stores && p.columns - column >= 8;
  for (std::int64_t batch = blockIdx.z; batch < p.grid.batch; batch += gridDim.z) {
    for (std::int64_t group = blockIdx.y; group < p.grid.groups(); group += gridDim.y) {
      const RowPosition at(p.grid, group);
      const std::int64_t row = at.first_row();
      const RowScales scales(p.scale_index, at, column / S::block);
      const std::uint8_t* codes = p.codes + (batch * p.grid.rows + row) * p.code_row_bytes;
      const std::uint8_t* scale = p.scales + batch * p.scale_index.size() + scales.offset;
      T* out = static_cast<T*>(p.out) + batch * p.batch_stride + row * p.row_stride + column;
      Octet octets[rows_per_thread];
      std::uint8_t bytes[rows_per_thread];
      // One question for the four rows, not one a row: comparisons cost as much as decoding.
      const bool whole = at.rows_left == ScaleIndex::tile_rows && whole_columns;
#pragma unroll
      for (int i = 0; i < rows_per_thread; ++i) {
        octets[i] = 0;
        bytes[i] = 0;
        const std::uint8_t* own = codes + i * row_spacing * p.code_row_bytes;
        if (whole) {
          octets[i] = load_whole_codes<octet_bytes>(own + start);
          bytes[i] = scale[i * scales.step];
        } else if (at.has_row(i) && column < p.columns) {
          octets[i] = load_codes<octet_bytes>(own + start, p.code_row_bytes - start);
          bytes[i] = scale[i * scales.step];
        }
      }
#pragma unroll
      for (int i = 0; i < rows_per_thread; ++i) {
        const RawOctet<T> raw = dequantize_octet<S, T>(octets[i], bytes[i], tensor_scale);
        T* own = out + i * row_spacing * p.row_stride;
        if (whole) {
          store_octet(own, raw);
        } else if (at.has_row(i)) {
          store_elements(own, raw, p.columns - column);
        }
      }
    }
  }
}

}  // namespace mxkern::kernels
