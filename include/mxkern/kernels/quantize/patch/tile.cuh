// mxkern/kernels/quantize/patch/tile.cuh: where the patches of a tile lie, and how its results
// leave.
#pragma once

#include <cstdint>

#include "mxkern/kernels/quantize/patch/codes.cuh"
#include "mxkern/kernels/quantize/patch/walk.cuh"
#include "mxkern/kernels/quantize/tile/quantize.cuh"

namespace mxkern::kernels {

// A warp has 64 rows of 32 columns of a tile of 128 x 128 elements, a lane a patch of 8 x 8, four
// patches across and eight down. Blocks of 16 or 32 span lanes in both directions, so that warps
// need nothing from each other. Codes and scales go out through shared memory: what a warp has of a
// line of codes is less than a sector.
inline constexpr int patch_threads = 256;
inline constexpr int patch_warp_columns = 32;
inline constexpr int patch_warp_rows = 64;

// What a patch kernel is compiled for.
enum class PatchWork {
  both,
  columns,
  squares,   // both directions share one scale, and codes
  transform  // a Hadamard transform within the blocks of the columns; rows are as they are
};

// Where patches measured faster on an H200 than a tile in shared memory. With 8 bits there is
// little to compute, and columns alone are best exchanged there, but for random words.
template <class S, Rounding R, PatchWork W>
inline constexpr bool patches_pay =
    W == PatchWork::both      ? R == Rounding::stochastic || S::Format::bits < 8
    : W == PatchWork::columns ? R == Rounding::stochastic
                              : true;

// Whether a thread block stays for many tiles and copies the next one while it works: for NVFP4,
// whose thread blocks begin with a table. Others have one tile each, and start faster.
template <class S, Rounding R, PatchWork W>
inline constexpr bool patch_stays = S::has_tensor_scale &&
                                    (W == PatchWork::both || W == PatchWork::transform);
template <class S, Rounding R, PatchWork W>
inline constexpr int patch_blocks = patch_stays<S, R, W> ? 2 : 3;  // a multiprocessor
// Whether lanes exchange random words: those of transformed columns, which other lanes have.
template <class S, Rounding R, PatchWork W>
inline constexpr bool patch_exchanges =
    patch_stays<S, R, W>&& R == Rounding::stochastic&& W == PatchWork::transform;

__device__ __forceinline__ int patch_across() { return static_cast<int>(threadIdx.x % 4); }
__device__ __forceinline__ int patch_down() { return static_cast<int>(threadIdx.x / 4 % 8); }
// The first column and row of a lane in the tile.
__device__ __forceinline__ int patch_column() {
  return static_cast<int>(threadIdx.x / 32 % 4) * patch_warp_columns +
         patch_across() * patch_extent;
}
__device__ __forceinline__ int patch_row() {
  return static_cast<int>(threadIdx.x / 128) * patch_warp_rows + patch_down() * patch_extent;
}

// Where a thread has its 16 bytes among those of its thread block, so that lanes that read halves
// of them, of patches above one another, meet as many banks as there are.
__device__ __forceinline__ unsigned shared_lane(unsigned thread) {
  return thread ^ (thread >> 1 & 4u);
}

// Lines of codes in shared memory. After every eight lines some bytes are left free, so that the
// eight lanes of a warp that store to lines 8 apart meet other banks.
template <int Bits, int Free>
struct PatchLines {
  static constexpr int line_bytes = tile_extent * Bits / 8;
  static constexpr int bytes = tile_extent * line_bytes + tile_extent / 8 * Free;
  static constexpr int chunk_bytes = 16;
  static constexpr int chunks = line_bytes / chunk_bytes;

  __device__ static int offset(int line, int byte) {
    return line * line_bytes + line / 8 * Free + byte;
  }
};

// `Words`: lanes exchange random words.
template <class S, bool Stays, bool Words>
struct PatchMemory {
  static constexpr int bits = S::Format::bits;
  using RowLines = PatchLines<bits, bits == 6 ? 32 : 4 * bits>;
  using ColumnLines = PatchLines<bits, 8 * bits>;
  static constexpr int blocks = tile_extent / S::block;
  static constexpr int scale_bytes = tile_extent * blocks + (Stays ? 64 : 0);  // half of the banks
  // The next patch of each lane, by shared_lane.
  alignas(128) uint4 ahead[Stays ? patch_extent : 1][Stays ? patch_threads : 1];
  uint4 words[Words ? patch_extent : 1][Words ? patch_threads : 1];
  alignas(16) std::uint8_t rows[RowLines::bytes];
  alignas(16) std::uint8_t columns[ColumnLines::bytes];
  TensorScale tensors[2];  // NVFP4: of rows and columns
  // Those of one tile along rows, and of one along columns. A larger group has more behind them:
  // those along rows of tiles side by side, then those along columns of all of its tiles.
  alignas(16) std::uint8_t scales[2 * scale_bytes];

  static constexpr int bytes(PatchGroup group) {
    const int across = 1 << group.log2_across, all = across << group.log2_down;
    return static_cast<int>(sizeof(PatchMemory)) + (across + all - 2) * scale_bytes;
  }
};

// Puts eight codes into a line; `odd`: of codes of 6 bits, those before are 6 bytes that end
// between two words.
template <int Bits>
__device__ __forceinline__ void put_codes(std::uint8_t* to, const PatchCodes& codes, bool odd) {
  if constexpr (Bits == 4) {
    *reinterpret_cast<std::uint32_t*>(to) = codes.word[0];
  } else if constexpr (Bits == 8) {
    *reinterpret_cast<uint2*>(to) = make_uint2(codes.word[0], codes.word[1]);
  } else {
    const std::uint32_t low = ptx::squeeze_sixes(codes.word[0]);
    const std::uint32_t high = ptx::squeeze_sixes(codes.word[1]);
    const std::uint32_t word = __byte_perm(low, high, odd ? 0x6542 : 0x4210);
    const std::uint32_t rest = __byte_perm(low, high, odd ? 0x4410 : 0x4465);
    *reinterpret_cast<std::uint32_t*>(to + (odd ? 2 : 0)) = word;
    *reinterpret_cast<std::uint16_t*>(to + (odd ? 0 : 4)) = static_cast<std::uint16_t>(rest);
  }
}

// Copies the lines of codes of a tile out; `line` is the first of them in all lines of `out`.
template <class Lines>
__device__ __forceinline__ void store_patch_lines(const TileOutput& out, std::int64_t line,
                                                  std::int64_t byte, const std::uint8_t* lines) {
  constexpr int lanes = Lines::chunks == 4 ? 4 : 8;  // of which 6 store, for codes of 6 bits
  constexpr int at_once = patch_threads / lanes;
  const int own = static_cast<int>(threadIdx.x / lanes);
  const int at = static_cast<int>(threadIdx.x % lanes) * Lines::chunk_bytes;
  if (at >= Lines::line_bytes) return;
  std::uint8_t* to = out.codes + (line + own) * out.code_row_bytes + byte + at;
  const std::uint8_t* from = lines + Lines::offset(own, at);
#pragma unroll
  for (int i = 0; i < tile_extent; i += at_once) {
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from + Lines::offset(i, 0));
    to += at_once * out.code_row_bytes;
  }
}

// Copies the scales of a tile out, [128 lines][blocks].
template <class S>
__device__ __forceinline__ void store_patch_scales(const TileOutput& out, std::int64_t batch,
                                                   int line_tile, int block_tile,
                                                   const std::uint8_t* scales) {
  constexpr int blocks = tile_extent / S::block;
  constexpr int words = tile_extent * blocks / 4;
  const ScaleIndex& index = out.scale_index;
  if (index.layout != ScaleLayout::swizzled) {
    return store_tile_scales<S>(out, batch, std::int64_t{line_tile} * tile_extent,
                                std::int64_t{block_tile} * blocks, scales);
  }
  // One or two tiles of the layout, one behind the other.
  if (threadIdx.x >= words) return;
  const unsigned line = threadIdx.x % 4 * 32 + threadIdx.x % tile_extent / 4;
  const unsigned group = threadIdx.x / tile_extent;
  const std::uint32_t across = (static_cast<std::uint32_t>(index.blocks) + 3) >> 2;
  const std::uint64_t tile = std::uint64_t{static_cast<std::uint32_t>(line_tile)} * across +
                             static_cast<std::uint32_t>(block_tile) * (blocks / 4);
  std::uint8_t* to = out.scales + tile * ScaleIndex::tile_bytes;
  if (batch != 0) to += batch * index.size();
  reinterpret_cast<std::uint32_t*>(to)[threadIdx.x] =
      *reinterpret_cast<const std::uint32_t*>(scales + line * blocks + group * 4);
}

// Copies row-major scales of adjacent tiles out, 128 lines of eight a tile, from line and block on:
// adjacent lanes have those of one line. Lines begin on eight bytes.
__device__ __forceinline__ void store_scale_lines(const TileOutput& out, std::int64_t batch,
                                                  std::int64_t line, std::int64_t block,
                                                  const std::uint8_t* scales, int tile_bytes,
                                                  int log2_tiles) {
  constexpr int blocks = 8;
  const unsigned tile = threadIdx.x & ((1u << log2_tiles) - 1);
  const ScaleIndex& index = out.scale_index;
  std::uint8_t* to =
      out.scales + batch * index.size() + line * index.blocks + block + tile * blocks;
  for (unsigned own = threadIdx.x >> log2_tiles; own < tile_extent;
       own += patch_threads >> log2_tiles) {
    *reinterpret_cast<uint2*>(to + own * index.blocks) =
        *reinterpret_cast<const uint2*>(scales + tile * tile_bytes + own * blocks);
  }
}

}  // namespace mxkern::kernels
