// cuda/gemm/hopper/launch.h: the Hopper product of one configuration, one instance file a pair of
// element types.
#pragma once

#include <cuda.h>

#include "cuda/operands/expand.h"
#include "cuda/gemm/hopper/multiply.h"
#include "cuda/operands/row_scaled.h"

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

// Of folded Left and Right, or of the same operands as bfloat16: `tasks` says from what the kernel
// makes these, counting in four words of `progress`.
struct FusedDispatchProductSm90 {
  const ProductSm90 &folded, &exact;
  ExpandTask tasks[2];
  std::uint32_t* progress;
};
template <class Left, class Right>
void launch_fused_dispatch_sm90(const FusedDispatchProductSm90& product);

}  // namespace mxkern::cuda
