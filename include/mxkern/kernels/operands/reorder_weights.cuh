// mxkern/kernels/operands/reorder_weights.cuh: codes and scales to the layout of few-token
// products.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mxkern/tensor/block_scaled.h"
#include "mxkern/tensor/decode_layout.h"
#include "mxkern/tensor/lifted_scales.h"

namespace mxkern::kernels {

inline constexpr int reorder_threads = 512;

struct ReorderParameters {
  DecodeLayout layout;
  const std::uint8_t* codes;
  const std::uint8_t* scales;
  ScaleIndex scale_index;
  std::int64_t code_row_bytes;
  std::int64_t batch;
  std::uint8_t* to;
};

// Four adjacent codes, zeros outside of the matrix; column is a multiple of 4.
template <class Format>
__device__ __forceinline__ std::uint32_t codes_at(const ReorderParameters& p,
                                                  const std::uint8_t* codes, std::int64_t row,
                                                  std::int64_t column) {
  constexpr int bits = Format::bits, bytes = bits / 2;
  const std::int64_t left = p.layout.columns - column;
  if (row >= p.layout.rows || left <= 0) return 0;
  const std::uint8_t* from = codes + row * p.code_row_bytes + column / 4 * bytes;
  // A byte of code has no padding behind it, packed codes have.
  const int there = bits == 8 && left < 4 ? static_cast<int>(left) : bytes;
  std::uint32_t word = 0;
  if (there == bytes && bytes != 3 && reinterpret_cast<std::uintptr_t>(from) % bytes == 0) {
    using Word = std::conditional_t<bytes == 2, std::uint16_t, std::uint32_t>;
    word = *reinterpret_cast<const Word*>(from);
  } else {
#pragma unroll
    for (int i = 0; i < bytes; ++i) {
      if (i < there) word |= static_cast<std::uint32_t>(from[i]) << (8 * i);
    }
  }
  return left < 4 ? word & ((1u << (bits * left)) - 1) : word;
}

// Eight adjacent codes as four pairs of 16 bits, the same way; column is a multiple of 8.
template <class Format>
__device__ __forceinline__ uint2 pairs_at(const ReorderParameters& p, const std::uint8_t* codes,
                                          std::int64_t row, std::int64_t column) {
  constexpr int bits = Format::bits;
  const std::uint8_t* from = codes + row * p.code_row_bytes + column / 8 * bits;
  std::uint32_t low, high;
  const bool is_whole = row < p.layout.rows && column + 8 <= p.layout.columns;
  if (is_whole && bits == 4 && reinterpret_cast<std::uintptr_t>(from) % 4 == 0) {
    low = *reinterpret_cast<const std::uint32_t*>(from);
    high = low >> 16;
  } else if (is_whole && bits == 8 && reinterpret_cast<std::uintptr_t>(from) % 8 == 0) {
    return *reinterpret_cast<const uint2*>(from);
  } else if (is_whole && bits == 6 && reinterpret_cast<std::uintptr_t>(from) % 2 == 0) {
    const auto* words = reinterpret_cast<const std::uint16_t*>(from);
    low = words[0] | static_cast<std::uint32_t>(words[1]) << 16;
    high = low >> 24 | static_cast<std::uint32_t>(words[2]) << 8;
  } else {
    low = codes_at<Format>(p, codes, row, column);
    high = codes_at<Format>(p, codes, row, column + 4);
  }
  constexpr std::uint32_t mask = (1u << (2 * bits)) - 1;
  if constexpr (bits == 8) return {low, high};
  return {(low & mask) | (low >> (2 * bits) & mask) << 16,
          (high & mask) | (high >> (2 * bits) & mask) << 16};
}

// Of four adjacent lanes, each of which has four pairs, lane i gets the i-th of all: those of the
// first and third lane, and of the second and fourth one.
__device__ __forceinline__ uint2 transpose_in_quad(const uint2& pairs, int lane) {
  const bool is_upper = (lane & 2) != 0, is_odd = (lane & 1) != 0;
  std::uint32_t got = __shfl_xor_sync(0xFFFFFFFFu, is_upper ? pairs.x : pairs.y, 2);
  const std::uint32_t a = is_upper ? got : pairs.x, b = is_upper ? pairs.y : got;
  const std::uint32_t low = __byte_perm(a, b, 0x5410), high = __byte_perm(a, b, 0x7632);
  got = __shfl_xor_sync(0xFFFFFFFFu, is_odd ? low : high, 1);
  return is_odd ? uint2{got, high} : uint2{low, got};
}

template <class Format>
__device__ __forceinline__ RowKind kind_of_code(std::uint32_t code) {
  const std::uint32_t magnitude = code & ((1u << (Format::bits - 1)) - 1);
  if (!Format::has_nan || magnitude <= Format::max_code) return RowKind::ordinary;
  const bool infinite = Format::specials == Specials::ieee && magnitude == Format::max_code + 1u;
  return infinite ? RowKind::special : RowKind::poisoned;
}

// What a warp finds out about 32 rows: masks, and of the row of each lane, over blocks whose codes
// are not all zeros, the largest scale, the lowest one and the lowest sum of HalfScales::place.
struct RowsFacts {
  std::uint32_t poisoned = 0, special = 0;
  int top = 0, lowest_scale = 1 << 16, lowest_place = 1 << 16;
};

// Of four bytes, each of which four adjacent lanes have one of, the lowest: of the row of this
// lane, which is byte lane / 8 of lanes lane % 8 * 4 and so on.
__device__ __forceinline__ int lowest_of_row(std::uint32_t bytes, int lane) {
  bytes = __vminu4(bytes, __shfl_xor_sync(0xFFFFFFFFu, bytes, 1));
  bytes = __vminu4(bytes, __shfl_xor_sync(0xFFFFFFFFu, bytes, 2));
  return static_cast<int>(__shfl_sync(0xFFFFFFFFu, bytes, lane % 8 * 4) >> (lane / 8 * 8) & 0xFFu);
}

// A block's scale, zero outside of the matrix.
template <class S>
__device__ __forceinline__ std::uint8_t scale_at(const ReorderParameters& p,
                                                 const std::uint8_t* scales, std::int64_t row,
                                                 std::int64_t block) {
  static_assert(S::has_tensor_scale != S::ScaleFormat::is_power_of_two, "E8M0, or as NVFP4");
  if (row >= p.layout.rows || block >= p.scale_index.blocks) return 0;
  const std::uint8_t scale = scales[p.scale_index.offset(row, block)];
  return S::has_tensor_scale ? scale & S::ScaleFormat::nan_byte : scale;
}

// Thirty-two columns of the thread block's 32 rows, by one warp. Adds to what is known of them.
template <class S>
__device__ __forceinline__ void reorder_block(const ReorderParameters& p, const std::uint8_t* codes,
                                              const std::uint8_t* scales, std::uint8_t* tile,
                                              std::int64_t down, std::int64_t block, int lane,
                                              RowsFacts& facts) {
  using Format = typename S::Format;
  using Bits = DecodeBits<Format>;
  constexpr int bits = Format::bits;
  constexpr int scales_a_block = DecodeLayout::block_columns / S::block;
  const int column_block = static_cast<int>(block % DecodeLayout::tile_blocks);
  constexpr std::uint32_t all_zeros = 0xFFu;
  std::uint32_t words[bits] = {};
  std::uint32_t places[4] = {all_zeros, all_zeros, all_zeros, all_zeros};  // of rows 8 apart
  std::uint32_t zero_rows = 0;  // whose scale is zero in this lane's columns
  if constexpr (S::has_tensor_scale) {
#pragma unroll
    for (int i = 0; i < scales_a_block; ++i) {
      const std::uint32_t zeros = __ballot_sync(
          0xFFFFFFFFu, scale_at<S>(p, scales, down * 32 + lane, block * scales_a_block + i) == 0);
      if (lane % 4 * 8 / S::block == i) zero_rows = zeros;
    }
  }
  uint2 of_lane[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + 8 * i;
    const std::int64_t column = block * DecodeLayout::block_columns + lane % 4 * 8;
    uint2 pairs = pairs_at<Format>(p, codes, down * 32 + row, column);
    if constexpr (S::has_tensor_scale) {
      if ((zero_rows >> row & 1u) != 0) pairs = {};
    }
    of_lane[i] = transpose_in_quad(pairs, lane);
  }
#pragma unroll
  for (int pair = 0; pair < 16; ++pair) {
    const DecodePlace at{0, lane, pair, 0};
    const int row = p.layout.row_of(at), chunk = pair / 2 % 4;
    const uint2& pairs = of_lane[pair / 8 * 2 + pair % 2];
    const std::uint32_t two = (chunk % 2 == 0 ? pairs.x : pairs.y) >> (chunk / 2 * 16);
    std::uint32_t spread = 0;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t code = two >> (bits * i) & ((1u << bits) - 1);
      const RowKind kind = kind_of_code<Format>(code);
      if (kind == RowKind::poisoned) facts.poisoned |= 1u << row;
      if (kind == RowKind::special) facts.special |= 1u << row;
      if constexpr (!S::has_tensor_scale) {
        const std::uint32_t magnitude = Format::is_integer ? code : code & ((1u << (bits - 1)) - 1);
        if (magnitude != 0) {
          std::uint32_t& place = places[pair / 8 * 2 + pair % 2];
          place = min(place, static_cast<std::uint32_t>(HalfScales<Format>::place(magnitude)));
        }
      }
      spread |= spread_code<Format>(code) << (16 * i);
    }
    put_pair<Format>(words + pair / Bits::pairs * Bits::words, pair % Bits::pairs, spread);
  }
#pragma unroll
  for (int word = 0; word < bits; ++word) {
    *reinterpret_cast<std::uint32_t*>(tile + p.layout.word_offset(column_block, lane, word)) =
        words[word];
  }
  int place = 0;
  if constexpr (!S::has_tensor_scale) {
    place = lowest_of_row(places[0] | places[1] << 8 | places[2] << 16 | places[3] << 24, lane);
  }
  // A lane a row.
  for (int i = 0; i < scales_a_block; ++i) {
    const std::int64_t row = down * 32 + lane, scale_block = block * scales_a_block + i;
    std::uint8_t scale = scale_at<S>(p, scales, row, scale_block);
    if (row < p.layout.rows && scale_block < p.scale_index.blocks) {
      if (scale == S::ScaleFormat::nan_byte) facts.poisoned |= 1u << lane;
      if constexpr (!S::has_tensor_scale) {
        if (place == all_zeros) scale = 0;
        if (scale > DecodeLayout::largest_scale) facts.special |= 1u << lane;
        if (place != all_zeros) {
          facts.top = max(facts.top, static_cast<int>(scale));
          facts.lowest_scale = min(facts.lowest_scale, static_cast<int>(scale));
          facts.lowest_place = min(facts.lowest_place, scale + place);
        }
      }
    }
    if constexpr (S::has_tensor_scale) scale = LiftedScales::lift(scale);
    tile[p.layout.scale_offset(lane, column_block * scales_a_block + i)] = scale;
  }
}

// Of a row, a lane of each warp: between which blocks those lie whose scale is so far below the top
// that halves may not be exact. The reordered scales are this lane's own writes. Blocks of zeros
// have a scale of zero; where no other one is that low they do not count.
template <class S>
__device__ void find_far_blocks(const DecodeLayout& layout, const std::uint8_t* tiles, int top,
                                bool skips_zeros, int& first_far, int& last_far) {
  using Scales = HalfScales<typename S::Format>;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto blocks = static_cast<int>(layout.tiles_across() * DecodeLayout::tile_blocks);
  int first = 1 << 16, last = 0;
  for (int block = static_cast<int>(threadIdx.x) / 32; block < blocks;
       block += reorder_threads / 32) {
    const int scale = tiles[layout.tile_offset(0, block / DecodeLayout::tile_blocks) +
                            layout.scale_offset(lane, block % DecodeLayout::tile_blocks)];
    if (scale - top + Scales::top_field >= Scales::safe_field || (scale == 0 && skips_zeros)) {
      continue;
    }
    first = min(first, block), last = max(last, block);
  }
  atomicMin(&first_far, first);
  atomicMax(&last_far, last);
}

// A thread block has 32 rows and finds what kind each is; a warp takes 32 columns at a time.
template <class S>
__global__ void __launch_bounds__(reorder_threads, 2) reorder_kernel(ReorderParameters p) {
  __shared__ std::uint32_t all_poisoned, all_special;
  __shared__ int tops[32], lowest_scales[32], lowest_places[32], first_far[32], last_far[32];
  __shared__ std::uint32_t all_wide;
  const DecodeLayout& layout = p.layout;
  const std::int64_t down = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x);
  for (std::int64_t batch = blockIdx.y; batch < p.batch; batch += gridDim.y) {
    if (thread == 0) all_poisoned = all_special = 0;
    if (thread < 32) {
      tops[thread] = last_far[thread] = 0;
      lowest_scales[thread] = lowest_places[thread] = first_far[thread] = 1 << 16;
    }
    __syncthreads();
    const std::uint8_t* codes = p.codes + batch * layout.rows * p.code_row_bytes;
    const std::uint8_t* scales = p.scales + batch * p.scale_index.size();
    std::uint8_t* to = p.to + batch * layout.size();
    const std::int64_t blocks = layout.tiles_across() * DecodeLayout::tile_blocks;
    RowsFacts facts;
    for (std::int64_t block = thread / 32; block < blocks; block += reorder_threads / 32) {
      reorder_block<S>(p, codes, scales,
                       to + layout.tile_offset(down, block / DecodeLayout::tile_blocks), down,
                       block, thread % 32, facts);
    }
    if (facts.poisoned != 0) atomicOr(&all_poisoned, facts.poisoned);
    if (facts.special != 0) atomicOr(&all_special, facts.special);
    if constexpr (!S::has_tensor_scale) {
      atomicMax(&tops[thread % 32], facts.top);
      atomicMin(&lowest_scales[thread % 32], facts.lowest_scale);
      atomicMin(&lowest_places[thread % 32], facts.lowest_place);
    }
    __syncthreads();
    // Kinds, and what pads them.
    std::uint8_t* kinds = to + layout.kinds_offset();
    if (thread < 32) {
      RowKind kind = RowKind::ordinary;
      if ((all_special >> thread & 1u) != 0) kind = RowKind::special;
      if ((all_poisoned >> thread & 1u) != 0) kind = RowKind::poisoned;
      kinds[down * 32 + thread] = static_cast<std::uint8_t>(kind);
      const std::uint32_t wide = __ballot_sync(
          0xFFFFFFFFu, !HalfScales<typename S::Format>::are_exact(
                           tops[thread], lowest_scales[thread], lowest_places[thread]));
      if (thread == 0) all_wide = S::has_tensor_scale ? 0 : wide;
    }
    const std::int64_t behind = layout.tiles_down() * 32 + thread;
    if (down + 1 == layout.tiles_down() &&
        behind < layout.spreads_offset() - layout.kinds_offset()) {
      kinds[behind] = 0;
    }
    __syncthreads();
    if ((all_wide >> thread % 32 & 1u) != 0) {
      find_far_blocks<S>(layout, to + layout.tile_offset(down, 0), tops[thread % 32],
                         lowest_scales[thread % 32] > 0, first_far[thread % 32],
                         last_far[thread % 32]);
    }
    __syncthreads();
    if (thread < 32) {
      const auto as_16_bits = [](int block) {
        return static_cast<std::uint16_t>(min(block, 65535));
      };
      reinterpret_cast<ScaleSpread*>(to + layout.spreads_offset())[down * 32 + thread] = {
          static_cast<std::uint8_t>(tops[thread]),
          static_cast<std::uint8_t>(all_wide >> thread & 1u),
          as_16_bits(first_far[thread]),
          as_16_bits(last_far[thread]),
          static_cast<std::uint8_t>(max(tops[thread] - lowest_scales[thread], 0)),
          0};
    }
    __syncthreads();
  }
  // A product that starts early reads the weights by bulk copies before it waits for this kernel's
  // end.
  __threadfence();
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}

}  // namespace mxkern::kernels
