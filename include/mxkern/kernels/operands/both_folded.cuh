// mxkern/kernels/operands/both_folded.cuh: 16-bit elements to folded rows and folded columns, by
// scales that are known.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mxkern/kernels/operands/both_scales.cuh"
#include "mxkern/kernels/operands/fold.cuh"

namespace mxkern::kernels {

// One direction of the result.
struct BothOutput {
  FoldedRows folded;
  std::uint8_t* spreads;  // a second place for them, or null
};

struct BothFoldedParameters {
  BothParameters both;
  BothOutput rows, columns;
};

// What becomes of the elements of a block: the multiplier of its scale as a bfloat16, which holds
// all powers of two, in the upper half, and in the lower one what folding multiplies its codes
// with, as a half. NaN makes NaN of all.
__device__ __forceinline__ std::uint32_t both_factors(unsigned byte, unsigned largest) {
  const bool is_poisoned = byte == E8M0::nan_byte;
  const std::uint32_t multiplier =
      is_poisoned ? float32::nan_bits : bits_of(e8m0_multiplier(static_cast<std::int32_t>(byte)));
  const __half2 factor = BlockFold<E4M3>::factor_of(largest - byte, is_poisoned);
  return __byte_perm(multiplier, *reinterpret_cast<const std::uint32_t*>(&factor), 0x3254);
}

// The factors of eight elements, in pairs.
struct OctetFactors {
  std::uint32_t multipliers[4], folds[4];

  __device__ __forceinline__ void set(int pair, std::uint32_t low, std::uint32_t high) {
    multipliers[pair] = __byte_perm(low, high, 0x7632);
    folds[pair] = __byte_perm(low, high, 0x5410);
  }

  // One for all of them.
  __device__ __forceinline__ static OctetFactors of(std::uint32_t factors) {
    OctetFactors all;
#pragma unroll
    for (int k = 0; k < 4; ++k) all.set(k, factors, factors);
    return all;
  }

  // Quantizes an octet and folds it.
  template <class T>
  __device__ __forceinline__ PatchCodes operator()(const RawOctet<T>& raw) const {
    float v[8];
    if constexpr (std::is_same_v<T, bfloat16>) {
      // Multiplied by a power of two, whatever does not become a code of zero stays exact.
      RawOctet<T> scaled;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const __nv_bfloat162 pair =
            __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&raw.word[k]),
                    *reinterpret_cast<const __nv_bfloat162*>(&multipliers[k]));
        scaled.word[k] = *reinterpret_cast<const std::uint32_t*>(&pair);
      }
      unpack(scaled, v);
    } else {
      unpack(raw, v);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        v[2 * k] = __fmul_rn(v[2 * k], float_of(multipliers[k] << 16));
        v[2 * k + 1] = __fmul_rn(v[2 * k + 1], float_of(multipliers[k] & 0xFFFF0000u));
      }
    }
    const PatchCodes codes = unpacked<8>(encode_octet<E4M3>(v));
    __half2 factors[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) factors[k] = *reinterpret_cast<const __half2*>(&folds[k]);
    return {{fold_quad<E4M3>(codes.word[0], factors[0], factors[1]),
             fold_quad<E4M3>(codes.word[1], factors[2], factors[3])}};
  }
};

// Copies what nobody reads again: it leaves the second-level cache to others.
struct LastCopy {
  std::uint64_t policy;

  __device__ __forceinline__ LastCopy() {
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  }
  __device__ __forceinline__ void operator()(std::uint32_t to, const void* from, int bytes) const {
    ptx::copy_async_16(to, from, bytes, policy);
  }
};

struct BothFoldedMemory {
  // What is left free lets eight lanes side by side, and two below one another, meet all banks.
  using RowLines = PatchLines<8, 64>;
  using ColumnLines = PatchLines<8, 16>;
  static constexpr int blocks = BothTiles::extent / 32;
  BothAhead<1> ahead;
  // What both_scales_kernel has left of each thread's line, copied ahead as well.
  std::uint32_t scales[BothTiles::lines];
  LineExtremes extremes[BothTiles::lines];
  // both_factors; those of adjacent blocks begin in other banks.
  alignas(16) std::uint32_t factors[2][blocks][BothTiles::extent + 4];
  alignas(16) std::uint8_t rows[RowLines::bytes];
  alignas(16) std::uint8_t columns[ColumnLines::bytes];

  // Begins to copy what is there of this thread's line.
  __device__ __forceinline__ void begin_line(const BothParameters& p, const BothTile& tile) {
    const unsigned thread = own_thread();
    const LineExtremes& from = p.extremes[tile.line(p.x.walk, thread)];
    LineExtremes& to = extremes[thread];
    ptx::copy_async_4(ptx::shared_address(&scales[thread]), p.scales + tile.scale_word(thread), 4);
    ptx::copy_async_4(ptx::shared_address(&to.largest), &from.largest, 4);
    ptx::copy_async_4(ptx::shared_address(&to.below), &from.below, 4);
  }

  // The factors of a lane's eight lines, which lie side by side.
  __device__ __forceinline__ void load_factors(int direction, int block, int line,
                                               std::uint32_t (&own)[patch_extent]) const {
    const auto* from = reinterpret_cast<const uint4*>(&factors[direction][block][line]);
    const uint4 low = from[0], high = from[1];
    own[0] = low.x, own[1] = low.y, own[2] = low.z, own[3] = low.w;
    own[4] = high.x, own[5] = high.y, own[6] = high.z, own[7] = high.w;
  }

  __device__ __forceinline__ static void put(std::uint8_t* to, const PatchCodes& own) {
    *reinterpret_cast<uint2*>(to) = make_uint2(own.word[0], own.word[1]);
  }

  // Copies the lines of a direction out, of which `count` exist. All of a line's bytes have room.
  template <class Lines>
  __device__ __forceinline__ static void store(const std::uint8_t* lines, std::uint8_t* to,
                                               std::int64_t line_bytes, int count) {
    constexpr int lanes = Lines::chunks, at_once = patch_threads / lanes;
    const auto thread = static_cast<int>(own_thread());
    const int own = thread / lanes, at = thread % lanes * Lines::chunk_bytes;
    const std::uint8_t* from = lines + Lines::offset(own, at);
    to += own * line_bytes + at;
    const std::int64_t step = at_once * line_bytes;
#pragma unroll
    for (int i = 0; i < BothTiles::extent; i += at_once) {
      if (own + i < count) {
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from + Lines::offset(i, 0));
      }
      to += step;
    }
  }
};

// Keeps the assembler, which stay() does not bind, from holding on to the float32 values of float16
// elements from rows to columns: they would take twice the registers. It cannot know that `count`
// is not negative.
template <class T>
__device__ __forceinline__ void forget_floats(PatchElements<T>& patch, int count) {
  const std::uint32_t zero = static_cast<std::uint32_t>(count) >> 31;
#pragma unroll
  for (int i = 0; i < patch_extent; ++i) {
#pragma unroll
    for (int k = 0; k < 4; ++k) patch.raw[i].word[k] ^= zero;
  }
}

// Thread blocks a multiprocessor, as many as its shared memory holds.
inline constexpr int both_folded_blocks = 3;
static_assert(both_folded_blocks * (sizeof(BothFoldedMemory) + 1024) <= 228 * 1024);

// Goes through the tiles of both_scales_kernel backwards: what that has read last lies in the
// second-level cache. The elements of a tile come while those of the one before are folded and
// stored, and of the first one while the last thread blocks of both_scales_kernel are at work.
// Device code of compute capability 8.9 and up.
template <class T>
__global__ void __launch_bounds__(patch_threads, both_folded_blocks)
    both_folded_kernel(const __grid_constant__ BothFoldedParameters p) {
#if MXKERN_HAS_CVT_E4M3
  extern __shared__ __align__(128) unsigned char shared[];
  auto& memory = *reinterpret_cast<BothFoldedMemory*>(shared);
  using RowLines = BothFoldedMemory::RowLines;
  using ColumnLines = BothFoldedMemory::ColumnLines;
  const BothParameters& both = p.both;
  const BothElements& x = both.x;
  const LastCopy copy;
  auto index = static_cast<int>(x.walk.count - 1 - blockIdx.x);
  memory.ahead.begin<T>(0, x, BothTile(x.walk, index), copy);
  wait_at_start(Follows::behind);
  memory.begin_line(both, BothTile(x.walk, index));
  ptx::copy_async_commit();
  for (; index >= 0; index -= static_cast<int>(gridDim.x)) {
    const BothTile tile(x.walk, index);
    PatchElements<T> patch;
    memory.ahead.finish(0, patch);
    const unsigned thread = own_thread();
    const unsigned direction = thread / BothTiles::extent, own_line = thread % BothTiles::extent;
    const std::uint32_t scales = memory.scales[thread];
    const LineExtremes extremes = memory.extremes[thread];
#pragma unroll
    for (int i = 0; i < BothFoldedMemory::blocks; ++i) {
      memory.factors[direction][i][own_line] =
          both_factors(scales >> 8 * i & 0xFFu, extremes.largest);
    }
    // The first tile of a line reports it.
    const BothOutput& out = direction == 0 ? p.rows : p.columns;
    const int lines = direction == 0 ? x.rows : x.columns;
    const int line = (direction == 0 ? tile.row() : tile.column()) + static_cast<int>(own_line);
    if ((direction == 0 ? tile.across : tile.down) == 0 && line < lines) {
      const int at = tile.batch * lines + line;
      const unsigned spread = extremes.spread();
      out.folded.template finish<E4M3>(at, extremes.largest, spread);
      if (out.spreads != nullptr) out.spreads[at] = static_cast<std::uint8_t>(spread);
    }
    if (const int next = index - static_cast<int>(gridDim.x); next >= 0) {
      const BothTile next_tile(x.walk, next);
      memory.ahead.begin<T>(0, x, next_tile, copy);
      memory.begin_line(both, next_tile);
      ptx::copy_async_commit();
    }
    __syncthreads();
    const unsigned lane = own_thread();
    const int row = both_row(lane), column = both_column(lane);
    std::uint32_t own[patch_extent];
    memory.load_factors(0, column / 32, row, own);
    std::uint8_t* to = memory.rows + RowLines::offset(row, column);
#pragma unroll
    for (int i = 0; i < patch_extent; ++i) {
      memory.put(to + i * RowLines::line_bytes, OctetFactors::of(own[i])(patch.raw[i]));
    }
    patch.stay();
    if constexpr (!std::is_same_v<T, bfloat16>) forget_floats(patch, x.walk.count);
    memory.load_factors(1, row / 32, column, own);
    OctetFactors along_columns;
#pragma unroll
    for (int k = 0; k < 4; ++k) along_columns.set(k, own[2 * k], own[2 * k + 1]);
    PatchCodes turned[patch_extent];
#pragma unroll
    for (int i = 0; i < patch_extent; ++i) turned[i] = along_columns(patch.raw[i]);
    turn_patch<8>(turned);
    to = memory.columns + ColumnLines::offset(column, row);
#pragma unroll
    for (int i = 0; i < patch_extent; ++i) memory.put(to + i * ColumnLines::line_bytes, turned[i]);
    __syncthreads();
    const FoldedRows &rows = p.rows.folded, &columns = p.columns.folded;
    const int first_row = tile.row(), first_column = tile.column();
    memory.store<RowLines>(
        memory.rows,
        rows.data + tile.batch * rows.batch_bytes + first_row * rows.row_bytes + first_column,
        rows.row_bytes, x.rows - first_row);
    memory.store<ColumnLines>(memory.columns,
                              columns.data + tile.batch * columns.batch_bytes +
                                  first_column * columns.row_bytes + first_row,
                              columns.row_bytes, x.columns - first_column);
  }
#elif defined(__CUDA_ARCH__)
  __trap();  // compiled for the list of architectures, and never chosen elsewhere
#endif
}

}  // namespace mxkern::kernels
