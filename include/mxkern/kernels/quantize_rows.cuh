// mxkern/kernels/quantize_rows.cuh: blocks along the rows, straight from memory to codes.
#pragma once

#include <cstdint>

#include "mxkern/kernels/quantize_four.cuh"
#include "mxkern/kernels/row_grid.cuh"

namespace mxkern::kernels {

struct QuantizeRowsParameters {
  RowGrid grid;
  const void* x;
  std::int64_t columns;
  std::int64_t batch_stride, row_stride;
  std::uint8_t* codes;
  std::int64_t code_row_bytes;
  std::uint8_t* scales;
  ScaleIndex scale_index;
  float* tensor_scale;  // NVFP4: written by the first thread; not what `options` reads
  OctetOptions options;
  bool vector_loads;   // every octet of x starts on 16 bytes
  bool vector_stores;  // rows of codes start and end on 8 bytes (4 bits an element: on 4)
  bool backwards;      // last rows first: they are what the pass before left in the cache
};

template <class S, class T, Rounding R>
__global__ void __launch_bounds__(row_threads)
    quantize_rows_kernel(const __grid_constant__ QuantizeRowsParameters p) {
  constexpr int lanes = S::block / 8;
  constexpr int octet_bytes = S::Format::bits;
  TensorScale tensor{};
  if constexpr (S::has_tensor_scale) {
    tensor = read_tensor_scale(p.options);
    if ((blockIdx.x | blockIdx.y | blockIdx.z | threadIdx.x) == 0) *p.tensor_scale = tensor.stored;
  }
  const bool swizzled = p.scale_index.layout == ScaleLayout::swizzled;
  const int across = 1 << p.grid.log2_across;
  const std::int64_t octet_index =
      static_cast<std::int64_t>(blockIdx.x) * across + (threadIdx.x & (across - 1));
  const std::int64_t column = octet_index * 8;
  const std::int64_t columns_left = p.columns - column;
  const std::int64_t block = octet_index / lanes;
  const std::int64_t blocks_end =
      swizzled ? round_up(p.scale_index.blocks, ScaleIndex::tile_blocks) : p.scale_index.blocks;
  const bool whole_columns = columns_left >= 8 && p.vector_loads;
  const bool whole_codes =
      p.vector_stores && octets_are_whole<octet_bytes>(p.code_row_bytes, blockIdx.x, across);
  for (std::int64_t batch = blockIdx.z; batch < p.grid.batch; batch += gridDim.z) {
    for (std::int64_t step = blockIdx.y; step < p.grid.groups(); step += gridDim.y) {
      const RowPosition at(p.grid, p.backwards ? p.grid.groups() - 1 - step : step);
      const std::int64_t row = at.first_row();
      const T* x =
          static_cast<const T*>(p.x) + batch * p.batch_stride + row * p.row_stride + column;
      RawOctet<T> raw[rows_per_thread];
      const bool whole_rows = at.rows_left == ScaleIndex::tile_rows;
      if (whole_rows && whole_columns) {
#pragma unroll
        for (int i = 0; i < rows_per_thread; ++i) {
          raw[i] = load_octet(x + i * row_spacing * p.row_stride);
        }
      } else {
#pragma unroll
        for (int i = 0; i < rows_per_thread; ++i) {
          raw[i] =
              load_elements(x + i * row_spacing * p.row_stride, at.has_row(i) ? columns_left : 0);
        }
      }
      const RowScales scales(p.scale_index, at, block);
      FourRows four;
      four.codes = p.codes + (batch * p.grid.rows + row) * p.code_row_bytes;
      four.code_step = row_spacing * p.code_row_bytes;
      four.code_start = octet_index * octet_bytes;
      four.code_row_bytes = p.code_row_bytes;
      four.whole = whole_rows && whole_codes;
      four.rows = at.rows_left - at.row_in_tile;
      four.scales = p.scales + batch * p.scale_index.size() + scales.offset;
      four.scale_step = scales.step;
      four.scale_rows = block >= blocks_end ? 0 : swizzled ? ScaleIndex::tile_rows : four.rows;
      four.index = (batch * p.grid.rows + row) * p.columns + column;
      four.index_step = row_spacing * p.columns;
      quantize_four_rows<S, T, R>(raw, four, p.options, tensor, SquareScales{});
    }
  }
}

}  // namespace mxkern::kernels
