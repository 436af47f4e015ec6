// cuda/multiply_sm90_columns_instances.cuh: what an instance file of the Hopper product of groups
// of columns instantiates.
#pragma once

#include "cuda/multiply_sm90_columns.h"
#include "cuda/multiply_sm90_instances.cuh"
#include "mxkern/kernels/gemm_sm90_columns.cuh"

namespace mxkern::cuda {

template <class Config>
void launch_columns_config(const ColumnsProductSm90& product) {
  const RowScaled &left = product.left, &right = product.right;
  const DeviceGroups& groups = product.groups;
  const CoreFinish& finish = product.finish;
  const TileSm90& tile = product.tile;
  check(tile.rows == Config::rows && tile.k == Config::k && tile.stages == Config::stages,
        product.function, ": the plan's tile is not the kernel's");
  const std::int64_t down = ceil_div(left.rows, tile.cluster_rows());
  const std::int64_t across = ceil_div(right.rows, tile.cluster_columns());
  const std::int64_t tiles = groups.count * down * across;
  check(tiles < std::int64_t{1} << 30, product.function, ": ", groups.count, " groups of [",
        left.rows, ", ", right.rows, "] have ", tiles,
        " tiles; expected fewer than 2^30; divide a");
  constexpr int band = band_sm90(false, false);
  kernels::ColumnsSm90Parameters p = {};
  p.order = {
      static_cast<int>(down), static_cast<int>(across), static_cast<int>(groups.count), band, band,
      static_cast<int>(tiles)};
  p.groups = {groups.ends, static_cast<int>(groups.count), static_cast<int>(left.columns)};
  p.tile_rows = tile.height(left.rows);
  p.finish = finish_parameters(left, right, finish, false);
  p.bias_step = groups.bias_step;
  p.group_factors = groups.factors;
  const CUtensorMap left_map =
      map_operand(product.function, left, p.tile_rows / Config::left_boxes);
  const CUtensorMap right_map = map_operand(product.function, right, Config::right_box);
  const CUtensorMap out_map =
      p.finish.stores_boxes ? map_output(product.function, finish.out, kernels::WarpChunk::rows)
                            : left_map;
  const std::int64_t clusters = lower_of<std::int64_t>(tiles, product.processors / tile.cluster);
  launch_clusters(product.function, kernels::gemm_sm90_columns<Config>, tile.cluster,
                  grid_of(clusters * tile.cluster), Config::threads, Config::shared_bytes,
                  product.stream, left_map, right_map, out_map, p);
}

template <class Left, class Right>
void launch_columns_tiles(const ColumnsProductSm90& product) {
  launch_tile<kernels::ColumnsSm90Config<Left, Right, 256>,
              kernels::ColumnsSm90Config<Left, Right, 192>,
              kernels::ColumnsSm90Config<Left, Right, 128>>(
      product.function, product.tile,
      [&]<class Config>(const Config*) { launch_columns_config<Config>(product); });
}

}  // namespace mxkern::cuda
