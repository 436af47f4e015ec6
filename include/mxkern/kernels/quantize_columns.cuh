// mxkern/kernels/quantize_columns.cuh: blocks along the columns of a tile, to lines of the
// transpose.
#pragma once

#include <cstdint>

#include "mxkern/kernels/quantize_tile.cuh"

namespace mxkern::kernels {

// Threads of the column phases: a pair of adjacent columns and a segment of 32 rows each.
__device__ __forceinline__ int segment_column() { return static_cast<int>(threadIdx.x) % 64 * 2; }
__device__ __forceinline__ int segment_row() {
  return static_cast<int>(threadIdx.x) / 64 * tile_segment;
}

// Random words of eight rows of two adjacent columns, whose first element has logical index
// `index`. Four columns share a Philox call where rows hold a multiple of four elements: then the
// two threads that have them make the calls of every other row and exchange words.
__device__ __forceinline__ void column_pair_words(const OctetOptions& options, std::int64_t index,
                                                  std::int64_t columns,
                                                  std::uint32_t (&words)[2][8]) {
  if (columns % 4 != 0) {
    octet_words(options, index, columns, words[0]);
    octet_words(options, index + 1, columns, words[1]);
    return;
  }
  const bool odd = (threadIdx.x & 1) != 0;
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const std::int64_t own = index + (odd ? i + 1 : i) * columns;
    const Philox4 four =
        philox4x32(options.seed, static_cast<std::uint64_t>(own) / 4, options.offset);
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const std::uint32_t kept = odd ? four.lane[2 + k] : four.lane[k];
      const std::uint32_t given = odd ? four.lane[k] : four.lane[2 + k];
      const std::uint32_t other = __shfl_xor_sync(full_warp, given, 1);
      words[k][i] = odd ? other : kept;
      words[k][i + 1] = odd ? kept : other;
    }
  }
}

// 4over6 for one block of a column: the better of two, or what there is where it is poisoned.
// Errors are those of rounding to nearest.
template <class S, Rounding R, class T>
__device__ __forceinline__ void better_column_block(const ColumnPair<T, S::block>& pair, int k,
                                                    const OctetOptions& options, std::int64_t index,
                                                    std::int64_t columns, std::uint32_t amax,
                                                    const TensorScale& tensor, BlockScale& scale,
                                                    Octet (&codes)[S::block / 8]) {
  if (!float32::is_finite(amax)) return;
  const FourOverSix two = nvfp4_four_over_six(float_of(amax), tensor);
  float error_of_six = 0.0f, error_of_four = 0.0f;
  Octet four[S::block / 8];
#pragma unroll
  for (int i = 0; i < S::block / 8; ++i) {
    constexpr Rounding nearest = Rounding::nearest;
    const std::uint32_t no_words[8] = {};
    float v[8];
    pair.octet(8 * i, k, v);
    codes[i] = quantize_octet<S, nearest>(v, float_of(amax), two.six.multiplier, no_words);
    four[i] = quantize_octet<S, nearest>(v, float_of(amax), two.four.multiplier, no_words);
    error_of_six = add_octet_errors(error_of_six, v, codes[i], two.six.byte, tensor);
    error_of_four = add_octet_errors(error_of_four, v, four[i], two.four.byte, tensor);
  }
  const bool take_four = error_of_four < error_of_six;
  scale = take_four ? two.four : two.six;
#pragma unroll
  for (int i = 0; i < S::block / 8; ++i) {
    codes[i] = take_four ? four[i] : codes[i];
    if constexpr (R == Rounding::stochastic) {
      float v[8];
      std::uint32_t words[8] = {};
      pair.octet(8 * i, k, v);
      octet_words(options, index + 8 * i * columns, columns, words);
      codes[i] = quantize_octet<S, R>(v, float_of(amax), scale.multiplier, words);
    }
  }
}

// A thread takes a block in each of two adjacent columns at a time. `squares` and `chosen`: amax
// and bytes of the squares of the tile, where there are squares.
template <class S, Rounding R, bool Plain, class T>
__device__ __forceinline__ void quantize_tile_columns(const QuantizeTileParameters& p,
                                                      const TilePosition& at, const T* elements,
                                                      const std::uint32_t* squares,
                                                      const std::uint32_t* chosen,
                                                      const TensorScale& tensor,
                                                      std::uint8_t* scales, std::uint8_t* lines) {
  constexpr int octets = S::block / 8;
  constexpr int blocks = tile_extent / S::block;
  const OctetOptions options = known_options<Plain>(p.along_columns.options);
  const bool in_squares = !Plain && p.square;
  const int column = segment_column();
#pragma unroll
  for (int part = 0; part < tile_segment / S::block; ++part) {
    const int row = segment_row() + part * S::block;
    const int block = row / S::block;
    const std::int64_t index = (at.batch * p.rows + at.row + row) * p.columns + at.column + column;
    ColumnPair<T, S::block> pair;
    pair.load(elements, row, column);
    std::uint32_t amax[2];
    BlockScale scale[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int square = block * blocks + (column + k) / S::block;
      const bool padding = column + k >= at.columns_left;
      amax[k] = !in_squares ? pair.amax(k) : padding ? 0u : squares[square];
      scale[k] = fast_block_scale<S>(amax[k], options.rule, tensor);
      if constexpr (S::has_tensor_scale) {
        if (in_squares && options.four_over_six && !padding && float32::is_finite(amax[k])) {
          scale[k].byte = static_cast<std::uint8_t>(chosen[square]);
          scale[k].multiplier = nvfp4_multiplier(scale[k].byte, tensor);
        }
      }
      if (!float32::is_finite(amax[k])) scale[k].multiplier = poisoned_multiplier;
    }
    Octet codes[2][octets];
#pragma unroll
    for (int i = 0; i < octets; ++i) {
      std::uint32_t words[2][8] = {};
      if constexpr (R == Rounding::stochastic) {
        column_pair_words(options, index + 8 * i * p.columns, p.columns, words);
      }
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        codes[k][i] = quantize_octet<S, R>(pair.raw_octet(8 * i, k), float_of(amax[k]),
                                           scale[k].multiplier, words[k]);
      }
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      if constexpr (S::has_tensor_scale) {
        if (options.four_over_six && !in_squares) {
          better_column_block<S, R>(pair, k, options, index + k, p.columns, amax[k], tensor,
                                    scale[k], codes[k]);
        }
      }
      scales[(column + k) * blocks + block] = scale[k].byte;
      store_line_segment<S>(lines, column + k, row, codes[k]);
    }
  }
}

// Copies the lines of the transpose out, a chunk a thread.
template <class S, class T>
__device__ __forceinline__ void store_tile_lines(const QuantizeTileParameters& p,
                                                 const TilePosition& at,
                                                 const std::uint8_t* lines) {
  using Lines = TileLines<S>;
  constexpr int chunks = Lines::line_bytes / Lines::chunk_bytes;
  const TileOutput& out = p.along_columns;
  const std::int64_t start = at.row / 8 * S::Format::bits;
  const std::int64_t left = out.code_row_bytes - start;
  std::uint8_t* to_tile =
      out.codes + (at.batch * p.columns + at.column) * out.code_row_bytes + start;
  if (out.vector_stores && at.columns_left == tile_extent && left >= Lines::line_bytes) {
    // The permutation of chunks repeats after 16 lines, so that addresses only move on.
    constexpr int lines_at_once = tile_threads / chunks / 16 * 16;
    if (static_cast<int>(threadIdx.x) >= lines_at_once * chunks) return;
    const int first = static_cast<int>(threadIdx.x) / chunks;
    const int chunk = static_cast<int>(threadIdx.x) % chunks;
    std::uint8_t* to = to_tile + first * out.code_row_bytes + chunk * Lines::chunk_bytes;
    const std::uint8_t* from = lines + Lines::offset(first, chunk);
#pragma unroll
    for (int line = 0; line < tile_extent; line += lines_at_once) {
      if (first + line < tile_extent) {
        if constexpr (Lines::chunk_bytes == 16) {
          *reinterpret_cast<uint4*>(to) =
              *reinterpret_cast<const uint4*>(from + line * Lines::pitch);
        } else {
          *reinterpret_cast<uint2*>(to) =
              *reinterpret_cast<const uint2*>(from + line * Lines::pitch);
        }
      }
      to += lines_at_once * out.code_row_bytes;
    }
    return;
  }
  for (int i = threadIdx.x; i < tile_extent * chunks; i += tile_threads) {
    const int line = i / chunks;
    const int chunk = i % chunks;
    const int byte = chunk * Lines::chunk_bytes;
    if (line >= at.columns_left) continue;
    const std::uint8_t* from = lines + Lines::offset(line, chunk);
    std::uint8_t* to = to_tile + line * out.code_row_bytes + byte;
    for (int b = 0; b < Lines::chunk_bytes && byte + b < left; ++b) to[b] = from[b];
  }
}

// One thread block a tile.
}  // namespace mxkern::kernels
