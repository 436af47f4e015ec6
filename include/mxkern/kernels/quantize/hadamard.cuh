// mxkern/kernels/quantize/hadamard.cuh: the random Hadamard transform along the rows of a tensor.
#pragma once

#include <cstdint>

#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/kernels/quantize/octet.cuh"
#include "mxkern/kernels/device/row_grid.cuh"

namespace mxkern::kernels {

struct HadamardParameters {
  RowGrid grid;
  const void* x;
  void* out;
  std::int64_t columns;
  std::int64_t x_batch_stride, x_row_stride;
  std::int64_t out_batch_stride, out_row_stride;
  int size;
  SignMask signs;
  bool inverse;
  bool vectors;  // every octet of x and of out starts on 16 bytes
};

template <class T>
__global__ void __launch_bounds__(row_threads)
    hadamard_kernel(const __grid_constant__ HadamardParameters p) {
  const int across = 1 << p.grid.log2_across;
  const bool are_pairs = sizeof(T) == 4 && p.vectors && p.columns % 16 == 0;
  const std::int64_t column =
      (static_cast<std::int64_t>(blockIdx.x) * across + (threadIdx.x & (across - 1))) * 8;
  wait_for_kernels_ahead();
  let_dependents_start();
  for (std::int64_t batch = blockIdx.z; batch < p.grid.batch; batch += gridDim.z) {
    for (std::int64_t group = blockIdx.y; group < p.grid.groups(); group += gridDim.y) {
      const RowPosition at(p.grid, group);
      const std::int64_t row = at.first_row();
      const T* x =
          static_cast<const T*>(p.x) + batch * p.x_batch_stride + row * p.x_row_stride + column;
      T* out =
          static_cast<T*>(p.out) + batch * p.out_batch_stride + row * p.out_row_stride + column;
      RawOctet<T> raw[rows_per_thread];
#pragma unroll
      for (int i = 0; i < rows_per_thread; ++i) {
        raw[i] = load_guarded(x + i * row_spacing * p.x_row_stride,
                              at.has_row(i) ? p.columns - column : 0, p.vectors);
      }
#pragma unroll
      for (int i = 0; i < rows_per_thread; ++i) {
        float v[8];
        unpack(raw[i], v);
        hadamard_octet<T>(v, threadIdx.x, p.size, p.signs, p.inverse);
        raw[i] = pack<T>(v);
        if (!float32::is_finite(octet_amax(v))) {
          // Rare: every NaN that comes out is the same one.
          raw[i] = {};
#pragma unroll
          for (int k = 0; k < 8; ++k) {
            set_element(raw[i], k,
                        from_float<T>(v[k] == v[k] ? v[k] : float_of(float32::nan_bits)));
          }
        }
        T* own = out + i * row_spacing * p.out_row_stride;
        if (are_pairs) {
          store_octet_beside(own, raw[i], at.has_row(i) && column < p.columns);
        } else if (at.has_row(i) && p.vectors && p.columns - column >= 8) {
          store_octet(own, raw[i]);
        } else if (at.has_row(i)) {
          store_elements(own, raw[i], p.columns - column);
        }
      }
    }
  }
}

}  // namespace mxkern::kernels
