// mxkern/kernels/operands/fold_rows.cuh: whole rows of 8-bit codes folded, one or several warps
// each.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mxkern/kernels/operands/fold.cuh"
#include "mxkern/kernels/device/row_scale_words.cuh"
#include "mxkern/kernels/operands/row_spreads.cuh"

namespace mxkern::kernels {

// Of one matrix whose rows have a multiple of 128 columns and start on 16 bytes.
struct FoldRowsParameters {
  const std::uint8_t* codes;
  RowScaleWords scales;
  FoldedRows out;
  int rows, columns;
  int folded_columns;  // the first ones
  int others;          // rows behind these, of which only the spreads are found
  int log2_warps;      // of a row
  Follows follows;
  ZeroedCounters counters[2];
};

inline constexpr int fold_rows_chunk = 4096;  // columns whose scales are a word a lane

// Of which rows who folds some finds the spreads.
enum class FoundSpreads : std::uint8_t { none, of_folded, of_all };

// What a warp folds of a row: every so many chunks of columns, all of which are on their way at
// once; or of a row of one chunk one of Shares of it. A lane has sixteen codes of every 512
// columns.
template <class S, int Shares, bool FindsSpread>
struct FoldRowChunks {
  using Format = typename S::Format;
  static_assert(is_fp8<Format> && S::block == 32);
  static constexpr unsigned everyone = 0xFFFFFFFFu;
  static constexpr int unit = 16, piece = 32 * unit;
  static constexpr int share = fold_rows_chunk / Shares, depth = share / piece;
  // Multipliers are worked out while codes are on their way, where nothing else is kept for a piece
  // of them than its multiplier.
  static constexpr bool keeps_factors = !FindsSpread && Format::specials != Specials::ieee;

  const std::uint8_t *codes, *scales;  // of this lane
  std::uint8_t* out;
  int columns, folded_columns;
  int scale_step;   // from one word of four scales to the next
  int first, step;  // chunk or share, and from one chunk to the next, in columns
  int lane;

  // Four scales, where the row has them; else four that count as NaN.
  __device__ __forceinline__ std::uint32_t word_at(int at) const {
    if (at >= columns - lane * 128) return ~0u;
    return *reinterpret_cast<const std::uint32_t*>(scales + at / 128 * scale_step);
  }
  __device__ __forceinline__ static uint4 load(const std::uint8_t* from) {
    return __ldcs(reinterpret_cast<const uint4*>(from));
  }

  // Codes from this lane's first one on, of the chunk that begins at a column and those behind it.
  __device__ __forceinline__ int left_at(int at) const { return folded_columns - at - lane * unit; }
  __device__ __forceinline__ void ask(uint4 (&loaded)[depth], int at) const {
#pragma unroll
    for (int i = 0; i < depth; ++i) {
      if (i * piece < left_at(at)) loaded[i] = load(codes + at + i * piece);
    }
  }

  // Finds the largest scale of the row; returns the spread of this warp's chunks, if it is to.
  __device__ __forceinline__ unsigned fold(unsigned& largest) const {
    // Ahead of the codes, or it comes behind them.
    std::uint32_t word = word_at(Shares > 1 ? 0 : first);
    uint4 loaded[depth];
    ask(loaded, first);
    std::uint32_t pairs = more_than(word);
    if constexpr (Shares == 1) {
#pragma unroll 4
      for (int at = first == 0 ? fold_rows_chunk : 0; at < columns; at += fold_rows_chunk) {
        pairs = __vmaxu2(pairs, more_than(word_at(at)));
      }
    }
    const int first_word = Shares > 1 ? first / 128 : 0;
    largest = largest_of_warp(pairs);
    unsigned spread = 0;
#pragma unroll 1
    for (int at = first; at < folded_columns; at += step) {
      if (Shares == 1 && at > first) word = word_at(at);
      fold_loaded(loaded, word, first_word, largest, left_at(at), out + at, codes + at + step,
                  left_at(at) - step, spread);
    }
    return FindsSpread ? __reduce_max_sync(everyone, spread) : 0u;
  }

  // Folds the codes of a chunk, of which `left` are there from this lane's first one on, under
  // scales in words of lanes from first_word on; and asks for those of the next one.
  __device__ __forceinline__ static void fold_loaded(uint4 (&loaded)[depth], std::uint32_t word,
                                                     int first_word, unsigned largest, int left,
                                                     std::uint8_t* to, const std::uint8_t* next,
                                                     int next_left, unsigned& spread) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    Scales held;
#pragma unroll
    for (int i = 0; i < depth; ++i) {
      // The lane that has the word of four scales, and the scale's place in it.
      const std::uint32_t four = __shfl_sync(everyone, word, first_word + i * 4 + lane / 8);
      held.put(i, four, lane / 2 % 4 * 8, largest);
    }
#pragma unroll
    for (int i = 0; i < depth; ++i) {
      const uint4 folded = held.block(i, largest)(loaded[i]);
      if (i * piece < left) *reinterpret_cast<uint4*>(to + i * piece) = folded;
      if constexpr (FindsSpread) {
        const unsigned found = is_zero(loaded[i]) ? 0u : held.distance(i, largest);
        if (i * piece < left) spread = max(spread, found);
      }
      if (i * piece < next_left) loaded[i] = load(next + i * piece);
    }
  }

 private:
  using Block = BlockFold<Format>;

  // The scales of all pieces' blocks, four in a word, or the multipliers of their elements.
  struct Scales {
    static constexpr int count = keeps_factors ? depth : (depth + 3) / 4;
    std::conditional_t<keeps_factors, __half2, std::uint32_t> kept[count] = {};

    // From the byte of `four` that `shift` bits are below.
    __device__ __forceinline__ void put(int i, std::uint32_t four, int shift, unsigned largest) {
      const std::uint32_t moved = four >> shift;
      if constexpr (keeps_factors) {
        const unsigned byte = moved & 0xFFu;
        kept[i] = Block::factor_of(largest - byte, byte == E8M0::nan_byte);
      } else {
        const int place = i % 4 * 4;  // of four bits; 4 stands for the first byte of `moved`
        kept[i / 4] = __byte_perm(kept[i / 4], moved, (0x3210 & ~(0xF << place)) | 4 << place);
      }
    }
    __device__ __forceinline__ unsigned byte(int i) const {
      return kept[i / 4] >> (i % 4 * 8) & 0xFFu;
    }
    __device__ __forceinline__ Block block(int i, unsigned largest) const {
      if constexpr (keeps_factors) {
        return Block(kept[i]);
      } else {
        const FoldTable<Format> no_table = {};
        return Block(largest - byte(i), byte(i) == E8M0::nan_byte, no_table);
      }
    }
    // How far the block lies below the largest scale, 0 where it does not count.
    __device__ __forceinline__ unsigned distance(int i, unsigned largest) const {
      return byte(i) == E8M0::nan_byte ? 0u : largest - byte(i);
    }
  };

  __device__ __forceinline__ static bool is_zero(const uint4& piece) {
    constexpr std::uint32_t magnitudes = Format::magnitude_mask * 0x01010101u;
    return ((piece.x | piece.y | piece.z | piece.w) & magnitudes) == 0;
  }
};

// Few instructions are ahead of the first load. Thread blocks that leave room for others beside
// them would not spread over the device, as they start wherever the kernel ahead leaves a
// multiprocessor first: where 32 warps a multiprocessor are enough for all rows, they are one
// thread block.
template <class S, int Warps, int Shares = 1, FoundSpreads Found = FoundSpreads::of_folded>
__global__ void __launch_bounds__(32 * Warps, 32 / Warps)
    fold_rows_kernel(const __grid_constant__ FoldRowsParameters p) {
  constexpr bool finds_spread = Found != FoundSpreads::none;
  __shared__ unsigned spreads[Warps];
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32, team = warp >> p.log2_warps;
  const int rank = warp & ((1 << p.log2_warps) - 1);
  const auto row =
      static_cast<int>(Warps == 32 ? team * gridDim.x + blockIdx.x : blockIdx.x * Warps + team);
  FoldRowChunks<S, Shares, finds_spread> chunks;
  chunks.lane = thread % 32;
  const std::int64_t start = std::int64_t{row} * p.columns + chunks.lane * chunks.unit;
  const std::uint8_t* codes = p.codes + start;
  std::uint8_t* out = p.out.data + start;
  const std::uint8_t* scales = p.scales.address(row, chunks.lane);
  asm volatile("" : "+l"(codes), "+l"(out), "+l"(scales));  // in registers, not worked out again
  __builtin_assume(__isGlobal(codes) && __isGlobal(out) && __isGlobal(scales));
  chunks.codes = codes;
  chunks.out = out;
  chunks.scales = scales;
  chunks.columns = p.columns;
  chunks.folded_columns = p.folded_columns;
  chunks.scale_step = p.scales.step;
  chunks.first = rank * chunks.share;
  chunks.step = Shares > 1 ? fold_rows_chunk : fold_rows_chunk << p.log2_warps;
  wait_at_start(p.follows);
  const bool exists = row < p.rows;
  unsigned largest = 0, spread = 0;
  if (exists) spread = chunks.fold(largest);
  if (finds_spread && p.log2_warps > 0) {
    if (chunks.lane == 0) spreads[warp] = spread;
    __syncthreads();
    for (int i = 1; rank == 0 && i < 1 << p.log2_warps; ++i)
      spread = max(spread, spreads[warp + i]);
  }
  if (exists && rank == 0 && chunks.lane == 0) {
    p.out.template finish<typename S::Format, finds_spread>(row, largest, spread);
  }
  if constexpr (Found == FoundSpreads::of_all) {
    const RowSpreads<typename S::Format> spreads_of_others{p.codes, p.scales};
    const auto warps = static_cast<int>(gridDim.x) * Warps;
#pragma unroll 1
    for (int i = static_cast<int>(blockIdx.x) * Warps + warp; i < p.others; i += warps) {
      const unsigned found = spreads_of_others.of(p.rows + i);
      if (chunks.lane == 0) p.out.spreads[p.rows + i] = static_cast<std::uint8_t>(found);
    }
  }
  for (const ZeroedCounters& words : p.counters) words.clear();
  wait_at_end(p.follows);
}

}  // namespace mxkern::kernels
