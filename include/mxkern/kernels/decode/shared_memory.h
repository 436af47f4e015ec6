// mxkern/kernels/decode/shared_memory.h: how a thread block of a few-token product uses its shared
// memory.
#pragma once

#include "mxkern/tensor/decode_layout.h"

namespace mxkern::kernels {

struct DecodeShape {
  // Bytes, of architectures 9.0 and 10.0; and where two thread blocks share a multiprocessor.
  static constexpr int limit = 227 * 1024, limit_of_two = 113 * 1024;
  static constexpr int barrier_bytes = 1024;
  // So much that no third thread block finds room beside two.
  static constexpr int fewest_bytes = 76 * 1024;

  int bits;    // of a code
  int block;   // columns that share a scale
  int tokens;  // of a thread block

  // Thread blocks that a multiprocessor has room for: where there are two, they are at different
  // points, and that of the next kernel fetches its first weights beside one of this kernel.
  MXKERN_HOST_DEVICE constexpr int tenants() const { return bits == 4 && tokens <= 16 ? 2 : 1; }
  MXKERN_HOST_DEVICE constexpr int room() const { return tenants() == 2 ? limit_of_two : limit; }
  // Of rows, that a warp takes at a time, at most: two tiles, with the same tokens, where registers
  // allow and it is of use.
  MXKERN_HOST_DEVICE constexpr int most_warp_tiles() const {
    return tenants() == 2 && tokens == 16 ? 2 : 1;
  }
  // Whether a warp may have its tokens beside its weights, for itself alone. More tokens, or more
  // weights, leave no room for that: warps that take the same columns share them.
  MXKERN_HOST_DEVICE constexpr bool may_keep(int warp_tiles) const {
    return tokens * warp_tiles <= 16;
  }
  // Warps that multiply, at most, for what registers allow.
  MXKERN_HOST_DEVICE constexpr int warps() const {
    return tokens <= 16 ? 16 / tenants() : tokens <= 32 ? 12 : 8;
  }

  // Of a warp's ring: so many, or, where it is 0, as many as there is room for. The kernels have
  // code for each of two.
  MXKERN_HOST_DEVICE constexpr int stages() const { return tokens <= 16 ? 2 : 0; }

  MXKERN_HOST_DEVICE constexpr DecodeLayout layout() const { return {0, 0, bits, block}; }
  MXKERN_HOST_DEVICE constexpr int tile_bytes() const { return layout().tile_bytes(); }

  // What a tile's scales are widened to: four bytes for each row and 32 columns, in rows for every
  // eighth row of weights. A warp has room for those that it is at.
  static constexpr int scale_stride = DecodeLayout::tile_blocks * 16;
  static constexpr int scale_bytes = 8 * scale_stride;

  // Tokens, of a tile of columns.
  MXKERN_HOST_DEVICE constexpr int x_stage_bytes() const {
    return tokens * DecodeLayout::tile_columns * 2;
  }

  // A warp's sums, tokens x rows, padded such that no two lanes that write together meet in a bank.
  // They take the place of the rings.
  static constexpr int sum_stride = (DecodeLayout::tile_rows + 4) * 4;
  MXKERN_HOST_DEVICE constexpr int sum_bytes() const { return tokens * sum_stride; }

  // What the other thread blocks of a cluster send: sums of this one's share of the outputs.
  MXKERN_HOST_DEVICE constexpr int inbox_bytes(int row_tiles, int log2_ranks) const {
    const int floats = tokens * row_tiles * DecodeLayout::tile_rows;
    return (floats - (floats >> log2_ranks)) * 4;
  }

  // Where groups have rows of their own: a warp's stages, as many as hide how long memory takes and
  // as there is room for; and its room for scales, and then for sums of eight rows.
  MXKERN_HOST_DEVICE constexpr int stages_of_groups() const {
    return bits == 4 && tokens == 8 ? 3 : 2;
  }
  MXKERN_HOST_DEVICE constexpr int room_of_warp() const {
    return higher_of(scale_bytes, 8 * sum_stride);
  }
  MXKERN_HOST_DEVICE constexpr int bytes_of_groups(int warps_that_multiply) const {
    const int used = barrier_bytes +
                     warps_that_multiply *
                         (stages_of_groups() * (tile_bytes() + x_stage_bytes()) + room_of_warp());
    return tenants() == 1 ? used : higher_of(used, fewest_bytes);
  }

  // Without stages of tokens each warp has them beside the stages of its weights.
  MXKERN_HOST_DEVICE constexpr int bytes(int row_tiles, int warp_tiles, int log2_parts,
                                         int log2_ranks, int stages, int x_stages) const {
    const int tiles = row_tiles << log2_parts;
    const int x = x_stages > 0 ? x_stages : tiles / warp_tiles * stages;
    const int rings = tiles * (stages * tile_bytes() + scale_bytes) + x * x_stage_bytes();
    const int used =
        barrier_bytes + higher_of(rings, tiles * sum_bytes()) + inbox_bytes(row_tiles, log2_ranks);
    return tenants() == 1 ? used : higher_of(used, fewest_bytes);
  }
};

}  // namespace mxkern::kernels
