// mxkern/kernels/quantize_tile_phases.cuh: what a thread block does with its tile, step by step.
#pragma once

#include <cstdint>

#include "mxkern/kernels/quantize_columns.cuh"
#include "mxkern/kernels/quantize_four.cuh"
#include "mxkern/kernels/quantize_tile.cuh"

namespace mxkern::kernels {

// Transforms groups of rows within every column of the tile, in place, rounded to T. Rows beyond
// `rows_left` keep the zeros that they are: a transform would give some of them a sign.
template <class T>
__device__ __forceinline__ void hadamard_columns(T* elements, float* floats, int size,
                                                 SignMask signs, int rows_left) {
  const int first = segment_row();
  const float norm = hadamard_norm(size);
  // Groups of 16 rows or more are there as a whole or not at all.
  const bool low_inside = first < rows_left, high_inside = first + 16 < rows_left;
  for (int k = 0; k < 2; ++k) {
    const int column = segment_column() + k;
    float v[tile_segment];
#pragma unroll
    for (int i = 0; i < tile_segment; ++i) {
      v[i] = flip_sign(to_float(elements[(first + i) * tile_extent + column]),
                       signs.bit((first + i) % size));
    }
    if (size == 16) {
      float(&low)[16] = *reinterpret_cast<float(*)[16]>(&v[0]);
      float(&high)[16] = *reinterpret_cast<float(*)[16]>(&v[16]);
      hadamard_butterflies(low);
      hadamard_butterflies(high);
    } else {
      hadamard_butterflies(v);
    }
#pragma unroll
    for (int i = 0; i < tile_segment; ++i) {
      if (size <= tile_segment) {
        if (!(i < 16 ? low_inside : high_inside)) continue;
        elements[(first + i) * tile_extent + column] = round_to<T>(__fmul_rn(v[i], norm));
      } else {
        floats[(first + i) * tile_extent + column] = v[i];
      }
    }
  }
  if (size <= tile_segment) return;
  // The strides of 32 and 64 span threads: four rows a thread, 32 apart.
  __syncthreads();
  for (int i = threadIdx.x; i < tile_segment * tile_extent; i += tile_threads) {
    const float a = floats[i];
    const float b = floats[i + 32 * tile_extent];
    const float c = floats[i + 64 * tile_extent];
    const float d = floats[i + 96 * tile_extent];
    float v[4] = {a + b, a - b, c + d, c - d};
    if (size == 128) {
      const float low0 = v[0], low1 = v[1];
      v[0] = low0 + v[2];
      v[1] = low1 + v[3];
      v[2] = low0 - v[2];
      v[3] = low1 - v[3];
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      elements[i + k * 32 * tile_extent] = round_to<T>(__fmul_rn(v[k], norm));
    }
  }
  __syncthreads();
}

// The amax of every square of S::block x S::block, as float32 bits, [blocks down][blocks across].
template <class S, class T>
__device__ __forceinline__ void square_amax(const T* elements, std::uint32_t* squares) {
  constexpr int across = tile_extent / S::block;
  constexpr int down = tile_segment / S::block;
#pragma unroll
  for (int part = 0; part < down; ++part) {
    ColumnPair<T, S::block> pair;
    pair.load(elements, segment_row() + part * S::block, segment_column());
    std::uint32_t amax = max(pair.amax(0), pair.amax(1));
    amax = lanes_amax<S::block / 2>(amax);
    if (segment_column() % S::block == 0) {
      squares[(segment_row() / S::block + part) * across + segment_column() / S::block] = amax;
    }
  }
}

// 4over6 for squares: one thread walks a square row by row. Writes the byte that is kept; errors
// are those of rounding to nearest.
template <class S, class T>
__device__ __forceinline__ void square_four_over_six(const T* elements,
                                                     const std::uint32_t* squares,
                                                     const TensorScale& tensor,
                                                     std::uint32_t* chosen) {
  constexpr int across = tile_extent / S::block;
  for (int square = threadIdx.x; square < across * across; square += tile_threads) {
    const int first_row = square / across * S::block;
    const int first_column = square % across * S::block;
    const FourOverSix scales = nvfp4_four_over_six(float_of(squares[square]), tensor);
    float errors[2] = {0.0f, 0.0f};
    for (int i = 0; i < S::block * S::block / 8; ++i) {
      const int row = first_row + i / (S::block / 8);
      const int column = first_column + i % (S::block / 8) * 8;
      float v[8];
      unpack(shared_octet(elements + row * tile_extent + column), v);
      constexpr Rounding nearest = Rounding::nearest;
      const float amax = float_of(squares[square]);
      const std::uint32_t no_words[8] = {};
      const Octet six = quantize_octet<S, nearest>(v, amax, scales.six.multiplier, no_words);
      const Octet four = quantize_octet<S, nearest>(v, amax, scales.four.multiplier, no_words);
      errors[0] = add_octet_errors(errors[0], v, six, scales.six.byte, tensor);
      errors[1] = add_octet_errors(errors[1], v, four, scales.four.byte, tensor);
    }
    chosen[square] = errors[1] < errors[0] ? scales.four.byte : scales.six.byte;
  }
}

// Blocks along the rows: 16 lanes take a row of the tile, four rows a thread at a time.
template <class S, Rounding R, bool Plain, class T>
__device__ __forceinline__ void quantize_tile_rows(const QuantizeTileParameters& p,
                                                   const TilePosition& at, const T* elements,
                                                   const std::uint32_t* squares,
                                                   const std::uint32_t* chosen,
                                                   const TensorScale& tensor) {
  constexpr int lanes = S::block / 8;
  constexpr int blocks = tile_extent / S::block;
  constexpr int octet_bytes = S::Format::bits;
  const TileOutput& out = p.along_rows;
  const OctetOptions options = known_options<Plain>(out.options);
  const bool square = !Plain && p.square;
  const bool swizzled = out.scale_index.layout == ScaleLayout::swizzled;
  const int octet = static_cast<int>(threadIdx.x) % tile_octets;
  const std::int64_t block = at.column / S::block + octet / lanes;
  const std::int64_t blocks_end =
      swizzled ? round_up(out.scale_index.blocks, ScaleIndex::tile_blocks) : out.scale_index.blocks;
  const bool whole =
      out.vector_stores && at.rows_left == tile_extent &&
      octets_are_whole<octet_bytes>(out.code_row_bytes, at.column / tile_extent, tile_octets);
  if (whole && at.columns_left == tile_extent && !square && !options.four_over_six) {
    const int first = static_cast<int>(threadIdx.x) / tile_octets;
    constexpr int rows_at_once = tile_threads / tile_octets;
    const std::int64_t row = at.row + first;
    FourWholeRows four;
    four.codes = out.codes + (at.batch * p.rows + row) * out.code_row_bytes;
    four.code_step = row_spacing * out.code_row_bytes;
    four.code_start = (at.column / 8 + octet) * octet_bytes;
    four.scale_step = swizzled ? 4 : row_spacing * out.scale_index.blocks;
    four.scales = out.scales + at.batch * out.scale_index.size() +
                  out.scale_index.offset(row, block) + SharedScales<S>::row(0) * four.scale_step;
    four.index = (at.batch * p.rows + row) * p.columns + at.column + octet * 8;
    four.index_step = row_spacing * p.columns;
    const T* from = elements + first * tile_extent + octet * 8;
#pragma unroll
    for (int k = 0; k < row_spacing / rows_at_once; ++k) {
      RawOctet<T> raw[rows_per_thread];
#pragma unroll
      for (int i = 0; i < rows_per_thread; ++i) {
        raw[i] = shared_octet(from + (k * rows_at_once + i * row_spacing) * tile_extent);
      }
      quantize_four_whole_rows<S, T, R>(raw, four, options, tensor);
      four.codes += rows_at_once * out.code_row_bytes;
      four.scales +=
          swizzled ? std::int64_t{16} * rows_at_once : rows_at_once * out.scale_index.blocks;
      four.index += rows_at_once * p.columns;
    }
    return;
  }
  for (int first = static_cast<int>(threadIdx.x) / tile_octets; first < row_spacing;
       first += tile_threads / tile_octets) {
    RawOctet<T> raw[rows_per_thread];
    SquareScales scales;
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) {
      const int row = first + i * row_spacing;
      raw[i] = shared_octet(elements + row * tile_extent + octet * 8);
      if (square && row < at.rows_left) {
        const int index = row / S::block * blocks + octet / lanes;
        scales.amax[i] = squares[index];
        scales.bytes[i] = options.four_over_six ? chosen[index] : 0;
      }
    }
    scales.used = square;
    scales.fixed = square && options.four_over_six;
    const std::int64_t row = at.row + first;
    FourRows four;
    four.codes = out.codes + (at.batch * p.rows + row) * out.code_row_bytes;
    four.code_step = row_spacing * out.code_row_bytes;
    four.code_start = (at.column / 8 + octet) * octet_bytes;
    four.code_row_bytes = out.code_row_bytes;
    four.whole = whole;
    four.rows = at.rows_left - first;
    four.scales =
        out.scales + at.batch * out.scale_index.size() + out.scale_index.offset(row, block);
    four.scale_step = swizzled ? 4 : row_spacing * out.scale_index.blocks;
    four.scale_rows = block >= blocks_end ? 0 : swizzled ? tile_extent : four.rows;
    four.index = (at.batch * p.rows + row) * p.columns + at.column + octet * 8;
    four.index_step = row_spacing * p.columns;
    four.inside = at.column + octet * 8 < p.columns;
    quantize_four_rows<S, T, R>(raw, four, options, tensor, scales);
  }
}

// Thread blocks a multiprocessor: what measured fastest on an H200. Four leave 64 registers a
// thread, which only the simplest kernels do with.
template <class S, class T, Rounding R, bool Plain>
inline constexpr int tile_blocks_at_once = Plain&& R == Rounding::nearest &&
                                                   sizeof(T) == 2 && S::Format::bits != 6 &&
                                                   !S::Format::is_integer
                                               ? 4
                                               : 3;

// Plain: no squares, no Hadamard transform and no 4over6.
template <class S, class T, Rounding R, bool Plain>
__global__ void __launch_bounds__(tile_threads, (tile_blocks_at_once<S, T, R, Plain>))
    quantize_tile_kernel(const __grid_constant__ QuantizeTileParameters p) {
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ std::uint32_t squares[tile_extent / S::block * (tile_extent / S::block)];
  __shared__ std::uint32_t chosen[tile_extent / S::block * (tile_extent / S::block)];
  const TileMemory<S, T> memory{shared};
  const bool rows_wanted = p.along_rows.codes != nullptr;
  const bool columns_wanted = p.along_columns.codes != nullptr;
  TensorScale row_tensor{}, column_tensor{};
  if constexpr (S::has_tensor_scale) {
    const bool first = (blockIdx.x | blockIdx.y | blockIdx.z | threadIdx.x) == 0;
    if (rows_wanted) {
      row_tensor = read_tensor_scale(p.along_rows.options);
      if (first) *p.along_rows.tensor_scale = row_tensor.stored;
    }
    if (columns_wanted) {
      column_tensor = read_tensor_scale(p.along_columns.options);
      if (first) *p.along_columns.tensor_scale = column_tensor.stored;
    }
  }
  const std::int64_t tiles_down = ceil_div(p.rows, tile_extent);
  for (std::int64_t batch = blockIdx.z; batch < p.batch; batch += gridDim.z)
    for (std::int64_t step = blockIdx.y; step < tiles_down; step += gridDim.y) {
      const TilePosition at(p, batch, p.backwards ? tiles_down - 1 - step : step, blockIdx.x);
      load_tile(p, at, memory.elements());
      __syncthreads();
      if (!Plain && p.square) {
        square_amax<S>(memory.elements(), squares);
        __syncthreads();
      }
      if (rows_wanted) {
        if constexpr (S::has_tensor_scale) {
          if (!Plain && p.square && p.along_rows.options.four_over_six) {
            square_four_over_six<S>(memory.elements(), squares, row_tensor, chosen);
            __syncthreads();
          }
        }
        quantize_tile_rows<S, R, Plain>(p, at, memory.elements(), squares, chosen, row_tensor);
        __syncthreads();
      }
      if (columns_wanted) {
        if (!Plain && p.along_columns.options.hadamard_size != 0) {
          hadamard_columns(memory.elements(), memory.floats(),
                           p.along_columns.options.hadamard_size,
                           p.along_columns.options.hadamard_signs, at.rows_left);
        }
        if constexpr (S::has_tensor_scale) {
          if (!Plain && p.square && p.along_columns.options.four_over_six) {
            square_four_over_six<S>(memory.elements(), squares, column_tensor, chosen);
            __syncthreads();
          }
        }
        quantize_tile_columns<S, R, Plain>(p, at, memory.elements(), squares, chosen, column_tensor,
                                           memory.scales(), memory.lines());
        __syncthreads();
        store_tile_lines<S, T>(p, at, memory.lines());
        store_tile_scales<S>(p.along_columns, at.batch, at.column, at.row / S::block,
                             memory.scales());
        __syncthreads();
      }
    }
}

}  // namespace mxkern::kernels
