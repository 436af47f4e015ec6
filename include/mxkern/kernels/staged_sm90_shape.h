// mxkern/kernels/staged_sm90_shape.h: how a thread block of gemm_staged_sm90 uses its memory.
#pragma once

#include "mxkern/kernels/few_shape.h"

namespace mxkern::kernels {

struct StagedSm90Shape {
  static constexpr int limit = FewShape::limit;  // bytes
  static constexpr int step_columns = 64;        // rows of 128 bytes, as the swizzle has them
  static constexpr int decoded_stages = 3;
  static constexpr int most_stages = 8;  // of codes
  static constexpr int x_stages = 4;
  static constexpr int tokens = 128;          // of a thread block
  static constexpr int row_sizes[] = {7, 8};  // tiles of rows

  MXKERN_HOST_DEVICE static constexpr int decoded_bytes(int row_tiles) {
    return row_tiles * DecodeLayout::tile_rows * step_columns * 2;
  }
  static constexpr int x_bytes = tokens * step_columns * 2;

  // Sums: a row of them for each token, apart such that lanes which write together do not meet.
  MXKERN_HOST_DEVICE static constexpr int sum_stride(int row_tiles) {
    return (row_tiles * DecodeLayout::tile_rows + 16) * 4;
  }

  MXKERN_HOST_DEVICE static constexpr int rings_bytes(const FewShape& shape, int row_tiles,
                                                      int stages) {
    return decoded_stages * decoded_bytes(row_tiles) + x_stages * x_bytes +
           stages * row_tiles * shape.tile_bytes();
  }

  // Of codes, as many as there is room for.
  MXKERN_HOST_DEVICE static constexpr int stages(const FewShape& shape, int row_tiles) {
    const int room = limit - FewShape::barrier_bytes - rings_bytes(shape, row_tiles, 0);
    return lower_of(room / (row_tiles * shape.tile_bytes()), most_stages);
  }

  // Sums of all thread blocks of a cluster, each a share of the tokens, take the place of the
  // rings.
  MXKERN_HOST_DEVICE static constexpr int bytes(const FewShape& shape, int row_tiles, int stages) {
    return FewShape::barrier_bytes +
           higher_of(rings_bytes(shape, row_tiles, stages), tokens * sum_stride(row_tiles));
  }
};

}  // namespace mxkern::kernels
