// mxkern/kernels/quantize/tile/phases.cuh: what a thread block does with its tile, step by step.
#pragma once

#include <cstdint>

#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/kernels/quantize/columns.cuh"
#include "mxkern/kernels/quantize/four_octets.cuh"
#include "mxkern/kernels/quantize/tile/quantize.cuh"
#include "mxkern/kernels/quantize/tile/copy.cuh"

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

// The amax and scale of every square of S::block x S::block.
template <class S, class T>
__device__ __forceinline__ void square_scales(const T* elements, const BlockScaler<S>& scaler,
                                              TileSquares<S>& squares) {
  constexpr int down = tile_segment / S::block;
#pragma unroll
  for (int part = 0; part < down; ++part) {
    ColumnPair<T, S::block> pair;
    pair.load(elements, segment_row() + part * S::block, segment_column());
    std::uint32_t amax = max(pair.amax(0), pair.amax(1));
    amax = lanes_amax<S::block / 2>(amax);
    if (segment_column() % S::block == 0) {
      const int square = (segment_row() / S::block + part) * squares.across;
      squares.put(square + segment_column() / S::block, amax, scaler(amax));
    }
  }
}

// The error of a square of magnitudes under one of the scales that 4over6 tries, rounded to nearest
// and summed in order, row by row.
template <class S, BlockError Kind, class T>
__device__ __forceinline__ float square_error(const T* elements, int square,
                                              const BlockScale& scale, const TensorScale& tensor) {
  constexpr int across = tile_extent / S::block, octets = S::block / 8;
  elements += square / across * S::block * tile_extent + square % across * S::block;
  float error = 0.0f;
#pragma unroll 2
  for (int i = 0; i < S::block * octets; ++i) {
    float magnitudes[8];
    unpack(octet_magnitudes(shared_octet(elements + i / octets * tile_extent + i % octets * 8)),
           magnitudes);
    const Octet codes = encode_magnitudes(magnitudes, scale.multiplier, true);
    error = add_octet_errors(Kind, error, magnitudes, codes, scale.byte, tensor);
  }
  return error;
}

// 4over6 for all squares: of two adjacent threads each has one of the scales.
template <class S, class T>
__device__ __forceinline__ void choose_square_scales(const T* elements,
                                                     const BlockScaler<S>& scaler,
                                                     TileSquares<S>& squares) {
  static_assert(2 * TileSquares<S>::count % 32 == 0, "whole warps exchange errors");
  for (int i = static_cast<int>(threadIdx.x); i < 2 * squares.count; i += tile_threads) {
    const int square = i / 2;
    const std::uint32_t amax = squares.amax[square];
    const bool finite = float32::is_finite(amax);
    const FourOverSix scales = four_over_six<S>(finite ? amax : 0u, scaler);
    const BlockScale own = i % 2 == 0 ? scales.six : scales.four;
    const float error =
        is_of_magnitudes(scaler.error)
            ? square_error<S, BlockError::mae>(elements, square, own, scaler.tensor)
            : square_error<S, BlockError::mse>(elements, square, own, scaler.tensor);
    const float error_of_four = __shfl_down_sync(full_warp, error, 1);
    if (i % 2 == 0 && finite) {
      squares.byte[square] = error_of_four < error ? scales.four.byte : scales.six.byte;
      squares.multiplier[square] = scaler.multiplier(squares.byte[square]);
    }
  }
}

// The scales of four rows of an octet: those of its squares, or of its own blocks.
template <class S>
struct TileRowScales {
  static constexpr int blocks = tile_extent / S::block;

  // Amax and scales of the squares of the rows first + i * 32; rows of padding have those of zeros.
  __device__ __forceinline__ static KnownScales<S> of_squares(const TileSquares<S>& squares,
                                                              int first, int block, int rows_left) {
    KnownScales<S> scales;
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) {
      const int square = (first + i * row_spacing) / S::block * blocks + block;
      const bool inside = first + i * row_spacing < rows_left;
      scales.amax[i] = inside ? squares.amax[square] : 0u;
      scales.multiplier[i] = inside ? squares.multiplier[square] : 0.0f;
    }
#pragma unroll
    for (int k = 0; k < SharedScales<S>::rows; ++k) {
      const int row = first + SharedScales<S>::row(k) * row_spacing;
      scales.byte[k] = row < rows_left ? squares.byte[row / S::block * blocks + block] : 0u;
    }
    return scales;
  }
};

// Blocks along the rows: 16 lanes take a row of the tile, four rows a thread at a time.
template <class S, Rounding R, TileKind W, class T>
__device__ __forceinline__ void quantize_tile_rows(const QuantizeTileParameters& p,
                                                   const TilePosition& at, const T* elements,
                                                   const TileSquares<S>& squares,
                                                   const BlockScaler<S>& scaler) {
  constexpr int lanes = S::block / 8;
  constexpr int octet_bytes = S::Format::bits;
  constexpr int rows_at_once = tile_threads / tile_octets;
  const TileOutput& out = p.along_rows;
  const OctetOptions options = known_tile_options<W>(out.options);
  const bool square = W == TileKind::any && p.square;
  const bool swizzled = out.scale_index.layout == ScaleLayout::swizzled;
  const int octet = static_cast<int>(threadIdx.x % tile_octets);
  const int first = static_cast<int>(threadIdx.x / tile_octets);
  const std::int64_t block = at.column / S::block + octet / lanes;
  const std::int64_t blocks_end =
      swizzled ? round_up(out.scale_index.blocks, ScaleIndex::tile_blocks) : out.scale_index.blocks;
  const bool whole =
      out.octet_stores &&
      octets_are_whole<octet_bytes>(out.code_row_bytes, at.column / tile_extent, tile_octets);
  const bool choose = S::has_tensor_scale && options.four_over_six && !square;
  RandomWords<R> random(out.options.keys, options.offset);
  const bool whole_words =
      R == Rounding::nearest || words_are_whole(p.batch * p.rows * p.columns, p.columns);
  if (whole && at.is_whole() && !choose && whole_words) {
    const std::int64_t row = at.row + first;
    FourWholeRows four;
    four.codes = out.codes + (at.batch * p.rows + row) * out.code_row_bytes +
                 whole_codes_start<octet_bytes>((at.column / 8 + octet) * octet_bytes);
    four.code_step = row_spacing * out.code_row_bytes;
    four.scale_step = swizzled ? 4 : row_spacing * out.scale_index.blocks;
    four.scales = out.scales + at.batch * out.scale_index.size() +
                  out.scale_index.offset(row, block) + SharedScales<S>::row(0) * four.scale_step;
    four.counter = static_cast<std::uint32_t>(
        ((at.batch * p.rows + row) * p.columns + at.column + octet * 8) / Philox::elements);
    four.counter_step = static_cast<std::uint32_t>(p.columns / Philox::elements * row_spacing);
    const T* from = elements + first * tile_extent + octet * 8;
#pragma unroll(W == TileKind::plain && R == Rounding::nearest ? 2 : 1)
    for (int k = 0; k < row_spacing / rows_at_once; ++k) {
      RawOctet<T> raw[rows_per_thread];
#pragma unroll
      for (int i = 0; i < rows_per_thread; ++i) {
        raw[i] = shared_octet(from + (k * rows_at_once + i * row_spacing) * tile_extent);
      }
      if (square) {
        const KnownScales<S> scales = TileRowScales<S>::of_squares(
            squares, first + k * rows_at_once, octet / lanes, tile_extent);
        quantize_four_whole_rows<S, T, R>(raw, scales, scaler, random, four);
      } else {
        PackedAmax<T> octets[rows_per_thread];
        four_amax(raw, options, true, octets);
        quantize_four_whole_rows<S, T, R>(raw, SharedScales<S>(octets, scaler), scaler, random,
                                          four);
      }
      four.codes += rows_at_once * out.code_row_bytes;
      four.scales +=
          swizzled ? std::int64_t{16} * rows_at_once : rows_at_once * out.scale_index.blocks;
      four.counter += static_cast<std::uint32_t>(p.columns / Philox::elements * rows_at_once);
    }
    return;
  }
  for (int tile_row = first; tile_row < row_spacing; tile_row += rows_at_once) {
    RawOctet<T> raw[rows_per_thread];
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) {
      raw[i] = shared_octet(elements + (tile_row + i * row_spacing) * tile_extent + octet * 8);
    }
    const std::int64_t row = at.row + tile_row;
    FourRows four;
    four.codes = out.codes + (at.batch * p.rows + row) * out.code_row_bytes;
    four.code_step = row_spacing * out.code_row_bytes;
    four.code_start = (at.column / 8 + octet) * octet_bytes;
    four.code_row_bytes = out.code_row_bytes;
    four.whole = whole;
    four.rows = at.rows_left - tile_row;
    four.scales =
        out.scales + at.batch * out.scale_index.size() + out.scale_index.offset(row, block);
    four.scale_step = swizzled ? 4 : row_spacing * out.scale_index.blocks;
    four.scale_rows = block >= blocks_end ? 0 : swizzled ? tile_extent : four.rows;
    four.index = (at.batch * p.rows + row) * p.columns + at.column + octet * 8;
    four.index_step = row_spacing * p.columns;
    if (square) {
      const KnownScales<S> scales =
          TileRowScales<S>::of_squares(squares, tile_row, octet / lanes, at.rows_left);
      quantize_four_rows<S, T, R>(raw, scales, scaler, false, random, four);
    } else {
      PackedAmax<T> octets[rows_per_thread];
      four_amax(raw, options, at.column + octet * 8 < p.columns, octets);
      quantize_four_rows<S, T, R>(raw, SharedScales<S>(octets, scaler), scaler, choose, random,
                                  four);
    }
  }
}

// Thread blocks a multiprocessor: what measured fastest. Four leave 64 registers a thread, which
// only the simplest kernels do with; with three, 80 registers, rare options and random words for
// float32 would spill hundreds of bytes.
template <class S, class T, Rounding R, TileKind W>
constexpr int tile_blocks_at_once() {
  constexpr bool is_random = R == Rounding::stochastic;
  if (W == TileKind::any || (is_random && sizeof(T) == 4)) return 2;
  return is_random || sizeof(T) == 4 || S::Format::is_integer ? 3 : 4;
}

template <class S, class T, Rounding R, TileKind W>
__global__ void __launch_bounds__(tile_threads, (tile_blocks_at_once<S, T, R, W>()))
    quantize_tile_kernel(const __grid_constant__ QuantizeTileParameters p) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ TileSquares<S> squares;
  const TileMemory<S, T> memory{shared};
  const bool rows_wanted = p.along_rows.codes != nullptr;
  const bool columns_wanted = p.along_columns.codes != nullptr;
  const std::int64_t tiles_down = ceil_div(p.rows, tile_extent) - p.first_down;
  const auto position = [&](std::int64_t batch, std::int64_t step) {
    return TilePosition(p, batch, p.first_down + (p.backwards ? tiles_down - 1 - step : step),
                        p.first_across + blockIdx.x);
  };
  if (is_one_of_the_first(p.fetching_blocks)) {
    fetch_tile<T>(p, position(blockIdx.z, blockIdx.y));
  }
  wait_at_start(p.follows);
  begin_tile(p, position(blockIdx.z, blockIdx.y), memory.elements());
  // While the first tile comes. A direction that is not wanted has the other's options, with
  // nothing to store.
  const TileOutput& rows = rows_wanted ? p.along_rows : p.along_columns;
  const TileOutput& columns = columns_wanted ? p.along_columns : p.along_rows;
  const BlockScaler<S> row_scaler = block_scaler<S>(rows.options, rows.tensor_scale);
  const BlockScaler<S> column_scaler =
      other_block_scaler<S>(columns.options, columns.tensor_scale, rows.options, row_scaler);
  const bool square = W == TileKind::any && p.square;
  const bool choose = W == TileKind::any && S::has_tensor_scale &&
                      (rows.options.four_over_six || columns.options.four_over_six);
  // The columns find the scales of squares for both directions, unless 4over6 has to choose them.
  const bool columns_first = square && columns_wanted && !choose;
  const bool chosen_once = choose && same_choice(rows.options, columns.options);
  const int hadamard = W == TileKind::any ? p.along_columns.options.hadamard_size : 0;
  for (std::int64_t batch = blockIdx.z; batch < p.batch; batch += gridDim.z)
    for (std::int64_t step = blockIdx.y; step < tiles_down; step += gridDim.y) {
      const TilePosition at = position(batch, step);
      if (batch != blockIdx.z || step != blockIdx.y) begin_tile(p, at, memory.elements());
      finish_tile();
#pragma unroll(W == TileKind::plain ? 2 : 1)
      for (int turn = 0; turn < 2; ++turn) {
        const bool along_columns = (turn == 0) == columns_first;
        if (along_columns ? !columns_wanted : !rows_wanted) continue;
        if (square && !columns_first && !(chosen_once && rows_wanted && along_columns)) {
          const BlockScaler<S>& scaler = along_columns ? column_scaler : row_scaler;
          __syncthreads();
          square_scales(memory.elements(), scaler, squares);
          __syncthreads();
          if constexpr (S::has_tensor_scale && W == TileKind::any) {
            if ((along_columns ? columns : rows).options.four_over_six) {
              choose_square_scales(memory.elements(), scaler, squares);
            }
            __syncthreads();
          }
        }
        if (!along_columns) {
          quantize_tile_rows<S, R, W>(p, at, memory.elements(), squares, row_scaler);
          continue;
        }
        if (hadamard > S::block) {
          __syncthreads();
          hadamard_columns(memory.elements(), memory.floats(), hadamard,
                           p.along_columns.options.hadamard_signs, at.rows_left);
        }
        quantize_tile_columns<S, R, W>(p, at, memory.elements(), squares, column_scaler, row_scaler,
                                       !columns_first, memory.scales(), memory.lines());
        if (columns_first) __syncthreads();
      }
      if (columns_wanted) {
        __syncthreads();
        store_tile_lines<S, T>(p, at, memory.lines());
        store_tile_scales<S>(p.along_columns, at.batch, at.column, at.row / S::block,
                             memory.scales());
      }
      __syncthreads();
    }
  wait_at_end(p.follows);
}

}  // namespace mxkern::kernels
