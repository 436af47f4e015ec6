// mxkern/kernels/decode/hopper/shared_memory.h: how a thread block of gemm_decode_sm90 uses its
// shared memory.
#pragma once

#include "mxkern/kernels/decode/shared_memory.h"

namespace mxkern::kernels {

struct DecodeSm90Shape {
  static constexpr int limit = DecodeShape::limit;
  // So much that no second thread block finds room beside one, while other multiprocessors idle.
  // Where there is to be a second one, DecodeShape::fewest_bytes keeps a third away.
  static constexpr int fewest_bytes = 115 * 1024;

  static constexpr int group_rows = 64;  // of a warpgroup
  static constexpr int group_tiles = group_rows / DecodeLayout::tile_rows;

  // Of a thread block.
  static constexpr int token_sizes[] = {32, 64, 96, 128, 192, 256};
  static constexpr int most_tokens = 256;

  // Warpgroups that multiply, for what registers allow: four, or two.
  static constexpr int fewest_warpgroups = 2;
  MXKERN_HOST_DEVICE static constexpr int most_warpgroups(int tokens) {
    return tokens <= 128 ? 4 : 2;
  }

  // Thread blocks that a multiprocessor has registers for.
  MXKERN_HOST_DEVICE static constexpr int tenants(int tokens, int warpgroups) {
    return warpgroups == 2 && tokens <= 96 ? 2 : 1;
  }
  // Whether it has memory for two as well: that of the next kernel is ready then, and has its first
  // weights, when one of this kernel ends.
  MXKERN_HOST_DEVICE static constexpr bool has_pairs(int tokens, int row_tiles, int log2_parts) {
    const int warpgroups = (row_tiles << log2_parts) / group_tiles;
    return tenants(tokens, warpgroups) == 2 && tokens << log2_parts <= 128;
  }
  MXKERN_HOST_DEVICE static constexpr int room(int tokens, int row_tiles, int log2_parts) {
    return has_pairs(tokens, row_tiles, log2_parts) ? DecodeShape::limit_of_two : limit;
  }

  // Sums: a row of them for each token, padded so that no two lanes meet in a bank.
  MXKERN_HOST_DEVICE static constexpr int sum_stride(int row_tiles) {
    return (row_tiles * DecodeLayout::tile_rows + 4) * 4;
  }
  MXKERN_HOST_DEVICE static constexpr int sum_bytes(int tokens, int row_tiles) {
    return tokens * sum_stride(row_tiles);
  }

  // Where sums are finished from registers, see DirectSm90: what warpgroups with parts of K leave
  // to one another, in the rings' place; and what the other thread block of a cluster of two sends,
  // at the end of all memory, beside the rings if there is room.
  MXKERN_HOST_DEVICE static constexpr int exchanged_bytes(int tokens, int row_tiles,
                                                          int log2_parts) {
    return row_tiles / group_tiles * ((1 << log2_parts) - 1) * tokens * group_rows * 4;
  }
  MXKERN_HOST_DEVICE static constexpr int direct_inbox_bytes(int tokens, int row_tiles,
                                                             int log2_ranks) {
    return log2_ranks == 1 ? tokens / 2 * row_tiles * DecodeLayout::tile_rows * 4 : 0;
  }

  // Stages: of weights, for each of the thread block's rows of tiles one for each part of K; of
  // tokens, 128 columns. Sums take the place of the rings, and behind them lies what the other
  // thread blocks of a cluster send.
  MXKERN_HOST_DEVICE static constexpr int bytes(const DecodeShape& shape, int row_tiles,
                                                int log2_parts, int log2_ranks, int stages,
                                                int x_stages) {
    const int rings = stages * (row_tiles << log2_parts) * shape.tile_bytes() +
                      x_stages * shape.tokens * DecodeLayout::tile_columns * 2;
    const int share = (shape.tokens >> log2_ranks) * row_tiles * DecodeLayout::tile_rows * 4;
    const int inbox = ((1 << log2_ranks) - 1) * share;
    const int sums = (sum_bytes(shape.tokens, row_tiles) << log2_parts) + inbox;
    const int direct_inbox = direct_inbox_bytes(shape.tokens, row_tiles, log2_ranks);
    const int direct = exchanged_bytes(shape.tokens, row_tiles, log2_parts) + direct_inbox;
    const int fewest =
        has_pairs(shape.tokens, row_tiles, log2_parts) ? DecodeShape::fewest_bytes : fewest_bytes;
    const int needed = DecodeShape::barrier_bytes + higher_of(rings, higher_of(sums, direct));
    const int beside = DecodeShape::barrier_bytes + rings + direct_inbox;
    const bool has_room = beside <= room(shape.tokens, row_tiles, log2_parts);
    return higher_of(fewest, has_room ? higher_of(beside, needed) : needed);
  }
};

}  // namespace mxkern::kernels
