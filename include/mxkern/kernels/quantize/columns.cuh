// mxkern/kernels/quantize/columns.cuh: blocks along the columns of a tile, to lines of the
// transpose.
#pragma once

#include <cstdint>

#include "mxkern/kernels/quantize/four_over_six.cuh"
#include "mxkern/kernels/quantize/tile/quantize.cuh"

namespace mxkern::kernels {

// Threads of the column phases: a pair of adjacent columns and a segment of 32 rows each.
__device__ __forceinline__ int segment_column() { return static_cast<int>(threadIdx.x % 64) * 2; }
__device__ __forceinline__ int segment_row() {
  return static_cast<int>(threadIdx.x / 64) * tile_segment;
}

// 4over6 for one block of a column: the better of two scales, and the codes under it, rounded to
// nearest. What is poisoned keeps the scale it has.
template <class S, class T>
__device__ __forceinline__ void better_column_block(const ColumnPair<T, S::block>& pair, int k,
                                                    std::uint32_t amax,
                                                    const BlockScaler<S>& scaler, BlockScale& scale,
                                                    Octet (&codes)[2]) {
  float magnitudes[2][8], v[8];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    pair.octet(8 * i, k, v);
#pragma unroll
    for (int j = 0; j < 8; ++j) magnitudes[i][j] = fabsf(v[j]);
  }
  const BlockScale better = better_scale<S>(magnitudes, amax, scaler, codes);
  const bool finite = float32::is_finite(amax);
  if (finite) scale = better;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    pair.octet(8 * i, k, v);
    codes[i] = finite ? codes[i] | octet_signs(v) : poison_octet<typename S::Format>;
  }
}

// Packed signs of eight rows of two adjacent columns, from eight words of 16-bit elements.
__device__ __forceinline__ void column_signs(const std::uint32_t* word, std::uint32_t (&signs)[2]) {
  std::uint32_t half[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t even = __byte_perm(word[4 * i], word[4 * i + 2], 0x7351);
    const std::uint32_t odd = __byte_perm(word[4 * i + 1], word[4 * i + 3], 0x7351);
    half[i] = ptx::place_e2m1_signs(even, odd);
  }
  signs[0] = __byte_perm(half[0], half[1], 0x5410);
  signs[1] = __byte_perm(half[0], half[1], 0x7632);
}

// Codes of four rows of two adjacent columns of bfloat16: two bytes a column.
template <bool Saturate>
__device__ __forceinline__ std::uint32_t encode_four_pairs(const std::uint32_t* word,
                                                           __nv_bfloat162 multipliers) {
  std::uint32_t code[4];
#pragma unroll
  for (int r = 0; r < 4; ++r) code[r] = encode_bfloat16_pair<Saturate>(word[r], multipliers);
  const std::uint32_t even = __byte_perm(code[0], code[2], 0x6240);
  const std::uint32_t odd = __byte_perm(code[1], code[3], 0x6240);
  // Masks: a NaN in one column, which poisons only that, has all bits set.
  return (even & 0x07070707u) | (odd << 4 & 0x70707070u) |
         ptx::place_e2m1_signs(__byte_perm(word[0], word[2], 0x7351),
                               __byte_perm(word[1], word[3], 0x7351));
}

// Codes of eight rows of two adjacent columns. Codes of 4 bits change sides, not their values.
template <class S, Rounding R, class T>
__device__ __forceinline__ void quantize_column_octets(const ColumnPair<T, S::block>& pair,
                                                       int first, const BlockScale (&scale)[2],
                                                       bool saturate, const Philox4 (&words)[2],
                                                       Octet (&codes)[2]) {
  constexpr bool nibbles = is_fp4<typename S::Format> && sizeof(T) == 2 && R == Rounding::nearest &&
                           !MXKERN_HAS_CVT_E2M1;
  if constexpr (nibbles && pairs_in_bfloat16<S, R, T>) {
    const std::uint32_t multipliers =
        __byte_perm(bits_of(scale[0].multiplier), bits_of(scale[1].multiplier), 0x7632);
    const auto pairs = *reinterpret_cast<const __nv_bfloat162*>(&multipliers);
    const std::uint32_t* word = pair.word + first;
    const std::uint32_t half[2] = {
        saturate ? encode_four_pairs<true>(word, pairs) : encode_four_pairs<false>(word, pairs),
        saturate ? encode_four_pairs<true>(word + 4, pairs)
                 : encode_four_pairs<false>(word + 4, pairs)};
    codes[0] = __byte_perm(half[0], half[1], 0x5410);
    codes[1] = __byte_perm(half[0], half[1], 0x7632);
  } else if constexpr (nibbles) {
    std::uint32_t signs[2];
    column_signs(pair.word + first, signs);
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      float v[8];
      pair.octet(first, k, v);
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i] = __fmul_rn(v[i], scale[k].multiplier);
      if (saturate) saturate_octet<E2M1>(v);
      codes[k] = ptx::encode_e2m1_magnitudes(v) | signs[k];
    }
  } else {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      float v[8];
      pair.octet(first, k, v);
      codes[k] = quantize_octet<S, R>(v, scale[k].multiplier, saturate, words[k]);
    }
  }
  if constexpr (nibbles) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      if (scale[k].multiplier < 0.0f) codes[k] = poison_octet<typename S::Format>;
    }
  }
}

// Rounds a block in each of two adjacent columns to nearest; `row`: its first row in the tile.
template <class S, class T>
__device__ __forceinline__ void quantize_column_blocks(const T* elements, int row,
                                                       const BlockScaler<S>& scaler,
                                                       std::uint8_t* scales, std::uint8_t* lines) {
  constexpr int octets = S::block / 8;
  constexpr int blocks = tile_extent / S::block;
  const int column = segment_column();
  ColumnPair<T, S::block> pair;
  pair.load(elements, row, column);
  const std::uint32_t amax[2] = {pair.amax(0), pair.amax(1)};
  const BlockScale scale[2] = {scaler(amax[0]), scaler(amax[1])};
  const bool saturate =
      scaler.saturates() && (block_saturates<S, Rounding::nearest>(amax[0], scale[0].multiplier) ||
                             block_saturates<S, Rounding::nearest>(amax[1], scale[1].multiplier));
  Octet codes[2][octets];
#pragma unroll
  for (int i = 0; i < octets; ++i) {
    Octet both[2];
    quantize_column_octets<S, Rounding::nearest>(pair, 8 * i, scale, saturate, {}, both);
    codes[0][i] = both[0];
    codes[1][i] = both[1];
  }
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    scales[(column + k) * blocks + row / S::block] = scale[k].byte;
    store_line_segment<S>(lines, column + k, row, codes[k]);
  }
}

// A thread takes a block in each of two adjacent columns at a time. The scales of squares are in
// `squares` if they are known; otherwise they are found here, and those of the other direction, by
// `row_scaler`, are left there.
template <class S, Rounding R, TileKind W, class T>
__device__ __forceinline__ void quantize_tile_columns(const QuantizeTileParameters& p,
                                                      const TilePosition& at, const T* elements,
                                                      TileSquares<S>& squares,
                                                      const BlockScaler<S>& scaler,
                                                      const BlockScaler<S>& row_scaler, bool known,
                                                      std::uint8_t* scales, std::uint8_t* lines) {
  constexpr int octets = S::block / 8;
  constexpr int blocks = tile_extent / S::block;
  const OctetOptions options = known_tile_options<W>(p.along_columns.options);
  const bool in_squares = W == TileKind::any && p.square;
  const int column = segment_column();
  if constexpr (W == TileKind::plain && R == Rounding::nearest) {
#pragma unroll
    for (int part = 0; part < tile_segment / S::block; ++part) {
      quantize_column_blocks(elements, segment_row() + part * S::block, scaler, scales, lines);
    }
    return;
  }
  RandomWords<R> random(p.along_columns.options.keys, options.offset);
#pragma unroll 1
  for (int part = 0; part < tile_segment / S::block; ++part) {
    const int row = segment_row() + part * S::block;
    const int block = row / S::block;
    const int square = block * blocks + column / S::block;
    const std::int64_t index = (at.batch * p.rows + at.row + row) * p.columns + at.column + column;
    ColumnPair<T, S::block> pair;
    pair.load(elements, row, column);
    if (options.hadamard_size != 0 && options.hadamard_size <= S::block) {
      pair.hadamard(options.hadamard_size, p.column_signs, at.rows_left - row);
    }
    std::uint32_t amax[2];
    BlockScale scale[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      if (in_squares && known) {
        amax[k] = squares.amax[square];
        scale[k] = {squares.byte[square], squares.multiplier[square]};
      } else {
        amax[k] = pair.amax(k);
        if (!in_squares) scale[k] = scaler(amax[k]);
      }
    }
    if (in_squares && !known) {
      amax[0] = amax[1] = lanes_amax<S::block / 2>(max(amax[0], amax[1]));
      scale[0] = scale[1] = scaler(amax[0]);
      if (column % S::block == 0) squares.put(square, amax[0], row_scaler(amax[0]));
    }
    if (in_squares) {
      // What pads a square beyond the last column has the scale of zeros.
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        if (column + k >= at.columns_left) scale[k] = {0, 0.0f};
      }
    }
    Octet codes[2][octets];
    const bool choose = S::has_tensor_scale && options.four_over_six && !in_squares;
    if constexpr (S::has_tensor_scale) {
      if (choose) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          better_column_block(pair, k, amax[k], scaler, scale[k], codes[k]);
        }
      }
    }
    // Codes of the better scale are there, but for random words, which two columns share.
    if (!choose || R == Rounding::stochastic) {
      const bool saturate =
          scaler.saturates() && (choose || block_saturates<S, R>(amax[0], scale[0].multiplier) ||
                                 block_saturates<S, R>(amax[1], scale[1].multiplier));
#pragma unroll
      for (int i = 0; i < octets; ++i) {
        Philox4 words[2] = {};
        random.column_pair(index + 8 * i * p.columns, p.columns, words);
        Octet both[2];
        quantize_column_octets<S, R>(pair, 8 * i, scale, saturate, words, both);
        codes[0][i] = both[0];
        codes[1][i] = both[1];
      }
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      scales[(column + k) * blocks + block] = scale[k].byte;
      store_line_segment<S>(lines, column + k, row, codes[k]);
    }
  }
}

// Copies whole lines of the transpose out, a chunk a thread.
template <class S, class Bytes>
__device__ __forceinline__ void store_whole_lines(std::uint8_t* to_tile, Bytes code_row_bytes,
                                                  const std::uint8_t* lines) {
  using Lines = TileLines<S>;
  constexpr int chunks = Lines::line_bytes / Lines::chunk_bytes;
  // The permutation of chunks repeats after 16 lines, so that addresses only move on.
  constexpr int lines_at_once = tile_threads / chunks / 16 * 16;
  if (static_cast<int>(threadIdx.x) >= lines_at_once * chunks) return;
  const int first = static_cast<int>(threadIdx.x / chunks);
  const int chunk = static_cast<int>(threadIdx.x % chunks);
  std::uint8_t* to = to_tile + first * code_row_bytes + chunk * Lines::chunk_bytes;
  const std::uint8_t* from = lines + Lines::offset(first, chunk);
#pragma unroll
  for (int line = 0; line < tile_extent; line += lines_at_once) {
    if (first + line < tile_extent) {
      if constexpr (Lines::chunk_bytes == 16) {
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from + line * Lines::pitch);
      } else {
        *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(from + line * Lines::pitch);
      }
    }
    to += lines_at_once * code_row_bytes;
  }
}

// Copies `count` lines of the transpose out, `bytes` bytes of each, where they begin and end with
// a `Unit`; adjacent threads store adjacent ones.
template <class S, class Unit>
__device__ __forceinline__ void store_line_units(std::uint8_t* to_tile, std::int64_t code_row_bytes,
                                                 int count, int bytes, const std::uint8_t* lines) {
  using Lines = TileLines<S>;
  constexpr int unit = sizeof(Unit), units = Lines::line_bytes / unit;
  for (int i = threadIdx.x; i < count * units; i += tile_threads) {
    const int line = i / units, byte = i % units * unit;
    if (byte >= bytes) continue;
    *reinterpret_cast<Unit*>(to_tile + line * code_row_bytes + byte) =
        *reinterpret_cast<const Unit*>(lines + Lines::offset(line, byte / Lines::chunk_bytes) +
                                       byte % Lines::chunk_bytes);
  }
}

// The same of lines that begin and end anywhere: words in memory, put together from two of shared
// memory.
template <class S>
__device__ __forceinline__ void store_line_bytes(std::uint8_t* to_tile, std::int64_t code_row_bytes,
                                                 int count, int bytes, const std::uint8_t* lines) {
  using Lines = TileLines<S>;
  constexpr int word_bytes = 4;
  constexpr int words = Lines::line_bytes / word_bytes, stores = words + 1;  // of a line
  const auto word_of = [&](int line, int word) -> std::uint32_t {
    const int byte = word * word_bytes;
    if (word < 0 || word >= words) return 0;
    return *reinterpret_cast<const std::uint32_t*>(
        lines + Lines::offset(line, byte / Lines::chunk_bytes) + byte % Lines::chunk_bytes);
  };
  for (int i = threadIdx.x; i < count * stores; i += tile_threads) {
    const int line = i / stores, word = i % stores;
    std::uint8_t* to = to_tile + line * code_row_bytes;
    const int behind = static_cast<int>(reinterpret_cast<std::uintptr_t>(to) % word_bytes);
    const int first =
        word * word_bytes - behind;  // the line's byte where the word in memory begins
    const std::uint32_t value =
        __funnelshift_l(word_of(line, word - 1), word_of(line, word), 8 * behind);
    if (first >= 0 && first + word_bytes <= bytes) {
      *reinterpret_cast<std::uint32_t*>(to + first) = value;
    } else {
#pragma unroll
      for (int k = 0; k < word_bytes; ++k) {
        if (first + k >= 0 && first + k < bytes) {
          to[first + k] = static_cast<std::uint8_t>(value >> (8 * k));
        }
      }
    }
  }
}

// Copies the lines of the transpose out.
template <class S, class T>
__device__ __forceinline__ void store_tile_lines(const QuantizeTileParameters& p,
                                                 const TilePosition& at,
                                                 const std::uint8_t* lines) {
  using Lines = TileLines<S>;
  const TileOutput& out = p.along_columns;
  const std::int64_t start = at.row / 8 * S::Format::bits;
  const std::int64_t left = out.code_row_bytes - start;
  std::uint8_t* to_tile =
      out.codes + (at.batch * p.columns + at.column) * out.code_row_bytes + start;
  if (out.vector_stores && at.columns_left == tile_extent && left >= Lines::line_bytes) {
    return store_whole_lines<S>(to_tile, out.code_row_bytes, lines);
  }
  const auto bytes = static_cast<int>(lower_of<std::int64_t>(left, Lines::line_bytes));
  const auto begins = reinterpret_cast<std::uintptr_t>(out.codes) | out.code_row_bytes;
  if (begins % 8 == 0) {
    store_line_units<S, uint2>(to_tile, out.code_row_bytes, at.columns_left, bytes, lines);
  } else if (begins % 4 == 0) {
    store_line_units<S, std::uint32_t>(to_tile, out.code_row_bytes, at.columns_left, bytes, lines);
  } else {
    store_line_bytes<S>(to_tile, out.code_row_bytes, at.columns_left, bytes, lines);
  }
}

}  // namespace mxkern::kernels
