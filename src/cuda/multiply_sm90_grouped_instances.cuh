// cuda/multiply_sm90_grouped_instances.cuh: what an instance file of the grouped Hopper product
// instantiates.
#pragma once

#include "cuda/multiply_sm90_grouped.h"
#include "cuda/multiply_sm90_instances.cuh"
#include "mxkern/kernels/gemm_sm90_grouped.cuh"
#include "plan_grouped.h"

namespace mxkern::cuda {

template <class Config>
void launch_grouped_config(const GroupedProductSm90& product) {
  const RowScaled &left = product.left, &right = product.right;
  const DeviceGroups& groups = product.groups;
  const CoreFinish& finish = product.finish;
  const TileSm90& tile = product.tile;
  check(tile.rows == Config::rows && tile.k == Config::k && tile.stages == Config::stages,
        product.function, ": the plan's tile is not the kernel's");
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
  p.finish = finish_parameters(left, right, finish, false);
  p.finish.batch_stride = 0;  // the batch is the group
  p.bias_step = groups.bias_step;
  p.group_factors = groups.factors;
  const CUtensorMap left_map =
      map_operand(product.function, left, product.height / Config::left_boxes);
  const CUtensorMap right_map = map_operand(product.function, right, Config::right_box);
  const CUtensorMap out_map =
      p.finish.stores_boxes ? map_output(product.function, finish.out, kernels::WarpChunk::rows)
                            : left_map;
  const std::int64_t clusters = lower_of<std::int64_t>(tiles, product.processors / tile.cluster);
  launch_clusters(product.function, kernels::gemm_sm90_grouped<Config>, tile.cluster,
                  grid_of(clusters * tile.cluster), Config::threads, Config::shared_bytes,
                  product.stream, left_map, right_map, out_map, p);
}

template <class Left, class Right>
void launch_grouped_tiles(const GroupedProductSm90& product) {
  launch_tile<kernels::GroupedSm90Config<Left, Right, 256>,
              kernels::GroupedSm90Config<Left, Right, 192>,
              kernels::GroupedSm90Config<Left, Right, 128>>(
      product.function, product.tile,
      [&]<class Config>(const Config*) { launch_grouped_config<Config>(product); });
}

}  // namespace mxkern::cuda
