// cuda/multiply_sm90_groups.cuh: what launches of products of groups on Hopper have in common.
#pragma once

#include "cuda/device_groups.h"
#include "cuda/multiply_sm90_instances.cuh"

namespace mxkern::cuda {

// Launches thread blocks that stay for so many tiles, each a cluster's. `rows`: of a tile.
template <class Config, class Product, class Parameters>
void launch_groups(const Product& product,
                   void (*kernel)(CUtensorMap, CUtensorMap, CUtensorMap, Parameters),
                   std::int64_t tiles, int rows, Parameters p) {
  const TileSm90& tile = product.tile;
  check(tile.rows == Config::rows && tile.k == Config::k && tile.stages == Config::stages,
        product.function, ": the plan's tile is not the kernel's");
  p.bias_step = product.groups.bias_step;
  p.group_factors = product.groups.factors;
  const CUtensorMap left = map_operand(product.function, product.left, rows / Config::left_boxes);
  const CUtensorMap right = map_operand(product.function, product.right, Config::right_box);
  const CUtensorMap out = p.finish.stores_boxes ? map_output(product.function, product.finish.out,
                                                             kernels::WarpChunk::rows)
                                                : left;
  const std::int64_t clusters = lower_of<std::int64_t>(tiles, product.processors / tile.cluster);
  launch_clusters(product.function, kernel, tile.cluster, grid_of(clusters * tile.cluster),
                  Config::threads, Config::shared_bytes, product.stream, left, right, out, p);
}

}  // namespace mxkern::cuda
