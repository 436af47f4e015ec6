// cuda/gemm/hopper/groups_instances.cuh: what an instance file of the Hopper products of groups
// instantiates.
#pragma once

#include "cuda/gemm/hopper/groups.h"
#include "cuda/gemm/hopper/instances.cuh"
#include "mxkern/kernels/gemm/hopper/grouped_columns.cuh"
#include "mxkern/kernels/gemm/hopper/grouped_rows.cuh"
#include "plan/grouped.h"

namespace mxkern::cuda {

// Launches thread blocks that stay for so many tiles, each a cluster's.
template <class Config, class Parameters>
void launch_groups(const GroupsProductSm90& product,
                   void (*kernel)(CUtensorMap, CUtensorMap, CUtensorMap, Parameters),
                   std::int64_t tiles, Parameters p) {
  const TileSm90& tile = product.tile;
  check(tile.rows == Config::rows && tile.k == Config::k && tile.stages == Config::stages,
        product.function, ": the plan's tile is not the kernel's");
  p.bias_step = product.groups.bias_step;
  p.group_factors = product.groups.factors;
  const CUtensorMap left =
      map_operand(product.function, product.left, product.height / Config::left_boxes);
  const CUtensorMap right = map_operand(product.function, product.right, Config::right_box);
  const CUtensorMap out = p.finish.stores_boxes ? map_output(product.function, product.finish.out,
                                                             kernels::WarpChunk::rows)
                                                : left;
  const std::int64_t clusters = lower_of<std::int64_t>(tiles, product.processors / tile.cluster);
  launch_clusters(product.function, kernel, tile.cluster, grid_of(clusters * tile.cluster),
                  Config::threads, Config::shared_bytes, product.stream, left, right, out, p);
}

template <class Config>
void launch_grouped_config(const GroupsProductSm90& product) {
  const RowScaled &left = product.left, &right = product.right;
  const DeviceGroups& groups = product.groups;
  const TileSm90& tile = product.tile;
  const std::int64_t across = ceil_div(right.rows, tile.columns * tile.cluster);
  const std::int64_t tiles = places_of_groups(left.rows, groups.count, product.height) * across;
  check(tiles < std::int64_t{1} << 30, product.function, ": ", left.rows, " rows of ", groups.count,
        " groups and N = ", right.rows, " need ", tiles,
        " tiles; expected fewer than 2^30; divide a");
  kernels::GroupedSm90Parameters p = {};
  p.tiles = {{groups.ends, static_cast<int>(groups.count), static_cast<int>(left.rows)},
             product.height,
             {static_cast<int>(across), band_sm90(false, false)}};
  p.steps = static_cast<int>(ceil_div(left.columns, tile.k));
  p.parts = left.parts;
  p.right_batched = right.batch > 1;
  p.skips_rows = skips_rows_sm90(left.rows, groups.count);
  p.finish = finish_parameters(left, right, product.finish, false);
  p.finish.batch_stride = 0;  // the batch is the group
  launch_groups<Config>(product, kernels::gemm_sm90_grouped<Config>, tiles, p);
}

template <class Left, class Right>
void launch_sm90_grouped(const GroupsProductSm90& product) {
  launch_tile<kernels::GroupedSm90Config<Left, Right, 256>,
              kernels::GroupedSm90Config<Left, Right, 192>,
              kernels::GroupedSm90Config<Left, Right, 128>>(
      product.function, product.tile,
      [&]<class Config>(const Config*) { launch_grouped_config<Config>(product); });
}

template <class Config>
void launch_columns_config(const GroupsProductSm90& product) {
  const RowScaled &left = product.left, &right = product.right;
  const DeviceGroups& groups = product.groups;
  const TileSm90& tile = product.tile;
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
  p.tile_rows = product.height;
  p.finish = finish_parameters(left, right, product.finish, false);
  launch_groups<Config>(product, kernels::gemm_sm90_columns<Config>, tiles, p);
}

template <class Left, class Right>
void launch_sm90_columns(const GroupsProductSm90& product) {
  launch_tile<kernels::ColumnsSm90Config<Left, Right, 256>,
              kernels::ColumnsSm90Config<Left, Right, 192>,
              kernels::ColumnsSm90Config<Left, Right, 128>>(
      product.function, product.tile,
      [&]<class Config>(const Config*) { launch_columns_config<Config>(product); });
}

}  // namespace mxkern::cuda
