// mxkern/kernels/quantize/patch/kernel.cuh: whole tiles of 16-bit elements in registers.
#pragma once

#include <cstdint>

#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/kernels/quantize/patch/quantize.cuh"

namespace mxkern::kernels {

// The scales of a group's tiles, as soon as those of a line are there.
template <class Memory>
__device__ __forceinline__ void store_group_scales(const QuantizeTileParameters& p,
                                                   const PatchGrid& grid, const PatchTile& tile,
                                                   std::int64_t batch, int line_tile,
                                                   int block_tile, const Memory& memory) {
  constexpr int blocks = Memory::blocks, bytes = Memory::scale_bytes;
  const PatchGroup& group = grid.group;
  const int first_across = block_tile & -(1 << group.log2_across);
  const int first_down = line_tile & -(1 << group.log2_down);
  if (p.along_rows.codes != nullptr && tile.is_last_across(grid)) {
    store_scale_lines(p.along_rows, batch, std::int64_t{line_tile} * tile_extent,
                      std::int64_t{first_across} * blocks, memory.scales, bytes, group.log2_across);
  }
  if (p.along_columns.codes == nullptr || !tile.is_last_of_group(grid)) return;
  const int across = 1 << group.log2_across;
  for (int i = 0; i < across; ++i) {
    store_scale_lines(p.along_columns, batch, std::int64_t{first_across + i} * tile_extent,
                      std::int64_t{first_down} * blocks,
                      memory.scales + (across + (i << group.log2_down)) * bytes, bytes,
                      group.log2_down);
  }
}

// Quantizes the whole tiles of x, with vector loads and stores. Both directions share the options
// of what they share: the words of stochastic rounding, the scales of squares. A direction that is
// not wanted has the other's options.
template <class S, class T, Rounding R, PatchWork W>
__global__ void __launch_bounds__(patch_threads, (patch_blocks<S, R, W>))
    quantize_patch_kernel(const __grid_constant__ QuantizeTileParameters p,
                          const __grid_constant__ PatchGrid grid) {
  constexpr bool stays = patch_stays<S, R, W>;
  constexpr bool exchanges = patch_exchanges<S, R, W>;
  using Memory = PatchMemory<S, stays, exchanges>;
  constexpr int bits = S::Format::bits;
  extern __shared__ __align__(128) unsigned char shared[];
  Memory& memory = *reinterpret_cast<Memory*>(shared);
  Patch<S, T, R, W> patch(p, memory);
  const auto down_of = [&](const PatchTile& tile) {
    const int down = tile.template tile_down<stays>(grid);
    return p.backwards ? grid.tiles_down() - 1 - down : down;
  };
  const auto row_of = [&](const PatchTile& tile) {
    return std::int64_t{down_of(tile)} * tile_extent;
  };
  const auto column_of = [&](const PatchTile& tile) {
    return std::int64_t{tile.template tile_across<stays>(grid)} * tile_extent;
  };
  const auto begin = [&](const PatchTile& tile) {
    patch.begin(tile.batch, row_of(tile), column_of(tile));
  };
  PatchTile tile = PatchTile::first<stays>(grid);
  if (is_one_of_the_first(p.fetching_blocks) && tile.batch < grid.batch) {
    patch.fetch(tile.batch, row_of(tile), column_of(tile));
  }
  wait_at_start(p.follows);
  if (tile.batch >= grid.batch) return wait_at_end(p.follows);
  begin(tile);
  // While the first tile comes.
  const BlockScaler<S> row_scaler = patch_scaler<S>(p, memory.tensors, 0);
  const BlockScaler<S> column_scaler = patch_scaler<S>(p, memory.tensors, 1);
  if constexpr (Patch<S, T, R, W>::in_halves) {
#pragma unroll 1
    for (int i = 0; i <= column_scaler.table; ++i) {
      fill_half_table({memory.tensors[i], i});
    }
    __syncthreads();
  }
  const bool grouped = stays && grid.group.log2_across + grid.group.log2_down > 0;
  while (true) {
    const std::int64_t batch = tile.batch, row = row_of(tile);
    const std::int64_t column = column_of(tile);
    if constexpr (stays) {
      const int inner_down = down_of(tile) & ((1 << grid.group.log2_down) - 1);
      const int inner_across = tile.inner_across(grid);
      const int across = 1 << grid.group.log2_across;
      patch.row_scales = inner_across * Memory::scale_bytes;
      patch.column_scales =
          (across + (inner_across << grid.group.log2_down) + inner_down) * Memory::scale_bytes;
    }
    patch.finish();
    if constexpr (R == Rounding::stochastic) {
      patch.counter = static_cast<std::uint32_t>(
          ((batch * p.rows + row + patch_row()) * p.columns + column + patch_column()) /
          Philox::elements);
    }
    PackedAmax<T> rows[2][4], pairs[4];
    patch.find_amax(rows, pairs);
    const PatchTile next = tile.next(grid);
    const bool more = stays && next.batch < grid.batch;
    if constexpr (Patch<S, T, R, W>::is_tall) {
      const bool with_rows = p.along_rows.codes != nullptr;
      if (with_rows) patch.quantize_rows(rows, row_scaler);
      if constexpr (exchanges) {
        if (!with_rows || p.words_differ) patch.put_words();
      }
      typename Patch<S, T, R, W>::Tall tall;
      tall.load(memory.ahead);
      __syncwarp();
      if (more) begin(next);
      tall.stay();
      patch.quantize_tall(tall, rows, column_scaler);
    } else if constexpr (W == PatchWork::squares) {
      if (more) begin(next);
      patch.quantize_squares(pairs, row_scaler);
    } else {
      if (more) begin(next);
      patch.quantize(rows, pairs, row_scaler, column_scaler, [&] {
        PatchTile same = tile;
        // Not from addresses that would be kept for it, in registers that fewer bits need.
        if (bits < 8) asm volatile("" : "+r"(same.across), "+r"(same.down), "+r"(same.batch));
        begin(same);
      });
    }
    __syncthreads();
    const int line_tile = static_cast<int>(row / tile_extent);
    const int block_tile = static_cast<int>(column / tile_extent);
    if (W != PatchWork::columns && p.along_rows.codes != nullptr) {
      store_patch_lines<typename Memory::RowLines>(p.along_rows, batch * p.rows + row,
                                                   column / 8 * bits, memory.rows);
      if (!grouped) {
        store_patch_scales<S>(p.along_rows, batch, line_tile, block_tile, memory.scales);
      }
    }
    if (p.along_columns.codes != nullptr) {
      store_patch_lines<typename Memory::ColumnLines>(p.along_columns, batch * p.columns + column,
                                                      row / 8 * bits, memory.columns);
      if (!grouped) {
        store_patch_scales<S>(p.along_columns, batch, block_tile, line_tile,
                              memory.scales + Memory::scale_bytes);
      }
    }
    if (grouped) store_group_scales(p, grid, tile, batch, line_tile, block_tile, memory);
    if (!more) break;
    __syncthreads();
    tile = next;
  }
  wait_at_end(p.follows);
}

}  // namespace mxkern::kernels
