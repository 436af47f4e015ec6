// cuda/multiply_sm90_launch.h: the Hopper product of one configuration, one instance file a pair of
// element types.
#pragma once

#include <cuda.h>

#include "cuda/multiply_sm90.h"
#include "cuda/row_scaled.h"

namespace mxkern::cuda {

struct ProductSm90 {
  const char* function;
  const RowScaled &left, &right;
  const CoreFinish& finish;
  const CoreGate& gate;
  TileSm90 tile;
  int band;  // of tiles
  kernels::WorkOrder work;
  void* part_memory;  // null where no tile is divided
  Stream stream;
};

// Launches with the configuration that product.tile names.
template <class Left, class Right>
void launch_sm90(const ProductSm90& product);

// Both in one kernel. Rows of the exact product's operands are late, all of them.
void launch_either_sm90(const ProductSm90& folded, const ProductSm90& exact);

}  // namespace mxkern::cuda
