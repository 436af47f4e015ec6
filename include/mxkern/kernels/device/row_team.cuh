// mxkern/kernels/device/row_team.cuh: threads that work on one row together, and their maxima.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/kernels/device/row_scale_words.cuh"
#include "mxkern/tensor/scale_layout.h"

namespace mxkern::kernels {

inline constexpr int team_threads = 256;  // of a thread block
inline constexpr int team_loads = 4;      // that a thread has in flight

// A thread block is divided into teams of 2^log2_threads threads, at least a warp, one row each:
// the longest team whose threads have all their loads in flight. Where a row leaves some of them
// without, too few bytes are on their way: [16384, 14336] took 126 us instead of 120 to fold.
constexpr int log2_team(std::int64_t loads, int log2_most = 8) {
  int log2 = 5;
  while (log2 < log2_most && (std::int64_t{team_loads} << (log2 + 1)) <= loads) ++log2;
  return log2;
}

struct RowTeam {
  int log2_threads;
  int rank;  // of this thread in its team
  int row;   // of the thread block's

  __device__ __forceinline__ explicit RowTeam(int log2)
      : log2_threads(log2),
        rank(static_cast<int>(threadIdx.x) & ((1 << log2) - 1)),
        row(static_cast<int>(threadIdx.x) >> log2) {}

  __device__ __forceinline__ int threads() const { return 1 << log2_threads; }

  // The largest value in the team; all its threads get it. All threads of the block call this. Two
  // calls in a row need different slots, one a warp.
  __device__ __forceinline__ unsigned max_of(unsigned value, unsigned* slots) const {
    constexpr unsigned everyone = 0xFFFFFFFFu;
    value = __reduce_max_sync(everyone, value);
    if (log2_threads == 5) return value;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (threadIdx.x % 32 == 0) slots[warp] = value;
    __syncthreads();
    const int warps = threads() / 32;
    const int first = warp & ~(warps - 1);
    for (int i = 0; i < warps; ++i) value = max(value, slots[first + i]);
    return value;
  }
};

// Counters that are to be zero when a kernel is over.
struct ZeroedCounters {
  std::uint32_t* counters;
  int count;

  // All threads of a grid along x call this.
  __device__ __forceinline__ void clear() const {
    const std::int64_t step = std::int64_t{gridDim.x} * blockDim.x;
    for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
         i += step) {
      counters[i] = 0;
    }
  }
};

// Where the rows of a batch of matrices lie, counted through.
struct TeamRow {
  std::int64_t batch = 0;
  std::int64_t row;

  __device__ __forceinline__ TeamRow(std::int64_t index, std::int64_t rows) : row(index) {
    if (index >= rows) {  // more than one matrix, or none of them
      batch = index / rows;
      row = index - batch * rows;
    }
  }
};

// The scales of one row of blocks: four adjacent ones, then, where they are swizzled, a jump.
struct ScaleRow {
  const std::uint8_t* scales;
  int jump;

  __device__ __forceinline__ ScaleRow(const std::uint8_t* all, const ScaleIndex& index,
                                      const TeamRow& at)
      : scales(all + at.batch * index.size() + index.offset(at.row, 0)),
        jump(index.layout == ScaleLayout::swizzled
                 ? ScaleIndex::tile_bytes - ScaleIndex::tile_blocks
                 : 0) {}

  __device__ __forceinline__ std::int64_t offset(std::int64_t block) const {
    return block + block / ScaleIndex::tile_blocks * jump;
  }
  __device__ __forceinline__ const std::uint8_t* address(std::int64_t block) const {
    return scales + offset(block);
  }
  __device__ __forceinline__ std::uint8_t operator[](std::int64_t block) const {
    return *address(block);
  }
};

// Stores 32 bytes a lane, at `start` plus 32 a lane, so that each instruction fills whole sectors
// of 32 bytes: adjacent lanes exchange halves. `count` lanes of the warp, from the first on, have
// something to store; all lanes call this.
__device__ __forceinline__ void store_halves(void* start, const uint4& low, const uint4& high,
                                             int count) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool odd = lane % 2 != 0;
  const auto trade = [&](std::uint32_t given) { return __shfl_xor_sync(0xFFFFFFFFu, given, 1); };
  const uint4 given = odd ? low : high, kept = odd ? high : low;
  const uint4 got = make_uint4(trade(given.x), trade(given.y), trade(given.z), trade(given.w));
  // The 64 bytes of two lanes: their first half is stored by both, then their second.
  auto* pieces = static_cast<uint4*>(start) + lane / 2 * 4 + lane % 2;
  if (lane / 2 * 2 < count) __stcs(pieces, odd ? got : kept);
  if (lane / 2 * 2 + 1 < count) __stcs(pieces + 2, odd ? kept : got);
}

// One more than the largest scale that is not NaN among up to 128 * Words from `first` on, of which
// the row has `left`; two maxima of 16 bits. Words are asked for together: one after the other,
// those of a long row take longer than its codes.
template <int Words>
__device__ __forceinline__ std::uint32_t largest_of_words(const ScaleRow& row, std::int64_t first,
                                                          int left) {
  std::uint32_t pairs = 0, words[Words];
#pragma unroll
  for (int i = 0; i < Words; ++i) {
    words[i] = ~0u;
    if (i * 128 < left) {
      words[i] = *reinterpret_cast<const std::uint32_t*>(row.address(first + i * 128));
    }
  }
#pragma unroll
  for (int i = 0; i < Words; ++i) {
    const int here = left - i * 128;
    if (here < 4 && here > 0) words[i] |= ~0u << (8 * here);
    pairs = __vmaxu2(pairs, more_than(words[i]));
  }
  return pairs;
}

// The largest E8M0 scale of a row that is not NaN. All lanes of a warp call this, and every warp of
// a team finds it on its own, which takes less time than waiting for one another. `in_words`: four
// scales are adjacent, and start on four bytes.
__device__ __forceinline__ unsigned largest_scale(const ScaleRow& row, std::int64_t blocks,
                                                  bool in_words) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  std::uint32_t pairs = 0;
  if (in_words) {
    const int left = static_cast<int>(blocks) - lane * 4;
    if (blocks <= 128) {
      pairs = largest_of_words<1>(row, lane * 4, left);
    } else if (blocks <= 256) {
      pairs = largest_of_words<2>(row, lane * 4, left);
    } else {
      for (int done = 0; done < blocks; done += 512) {
        pairs = __vmaxu2(pairs, largest_of_words<4>(row, done + lane * 4, left - done));
      }
    }
  } else {
    for (std::int64_t block = lane; block < blocks; block += 32) {
      pairs = max(pairs, (row[block] + 1u) & 0xFFu);
    }
  }
  return largest_of_warp(pairs);
}

}  // namespace mxkern::kernels
