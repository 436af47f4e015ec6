// cuda/multiply_sm90_grouped_instances.cuh: what an instance file of the grouped Hopper product
// instantiates.
#pragma once

#include "cuda/multiply_sm90_grouped.h"
#include "cuda/multiply_sm90_groups.cuh"
#include "mxkern/kernels/gemm_sm90_grouped.cuh"
#include "plan/plan_grouped.h"

namespace mxkern::cuda {

template <class Config>
void launch_grouped_config(const GroupedProductSm90& product) {
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
  launch_groups<Config>(product, kernels::gemm_sm90_grouped<Config>, tiles, product.height, p);
}

template <class Left, class Right>
void launch_sm90_grouped(const GroupedProductSm90& product) {
  launch_tile<kernels::GroupedSm90Config<Left, Right, 256>,
              kernels::GroupedSm90Config<Left, Right, 192>,
              kernels::GroupedSm90Config<Left, Right, 128>>(
      product.function, product.tile,
      [&]<class Config>(const Config*) { launch_grouped_config<Config>(product); });
}

}  // namespace mxkern::cuda
