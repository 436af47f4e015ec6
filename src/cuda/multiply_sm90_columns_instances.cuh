// cuda/multiply_sm90_columns_instances.cuh: what an instance file of the Hopper product of groups
// of columns instantiates.
#pragma once

#include "cuda/multiply_sm90_columns.h"
#include "cuda/multiply_sm90_groups.cuh"
#include "mxkern/kernels/gemm_sm90_columns.cuh"

namespace mxkern::cuda {

template <class Config>
void launch_columns_config(const ColumnsProductSm90& product) {
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
  p.tile_rows = tile.height(left.rows);
  p.finish = finish_parameters(left, right, product.finish, false);
  launch_groups<Config>(product, kernels::gemm_sm90_columns<Config>, tiles, p.tile_rows, p);
}

template <class Left, class Right>
void launch_sm90_columns(const ColumnsProductSm90& product) {
  launch_tile<kernels::ColumnsSm90Config<Left, Right, 256>,
              kernels::ColumnsSm90Config<Left, Right, 192>,
              kernels::ColumnsSm90Config<Left, Right, 128>>(
      product.function, product.tile,
      [&]<class Config>(const Config*) { launch_columns_config<Config>(product); });
}

}  // namespace mxkern::cuda
