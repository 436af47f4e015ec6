// cuda/operands/reorder_weights.cu: weights to the layout of few-token products.
#include "mxkern/kernels/operands/reorder_weights.cuh"

#include "cuda/decode/launch.h"
#include "cuda/runtime/launch.h"
#include "mxkern/tensor/packing.h"

namespace mxkern::cuda {

void reorder_weights(const char* function, const BlockScaled& weights, std::uint8_t* destination,
                     Stream stream) {
  const Shape& shape = weights.shape;
  const DecodeLayout layout = DecodeLayout::of(weights.scheme, shape.rows, shape.columns);
  check(starts_on(destination, DecodeLayout::alignment), function,
        ": the memory for reordered weights is not aligned to ", DecodeLayout::alignment,
        " bytes; expected memory as allocators of CUDA give it");
  const DeviceScope scope(weights.device, function);
  check_device_pointer(function, "the weights' codes", weights.codes, weights.device);
  check_device_pointer(function, "the weights' scales", weights.scales, weights.device);
  check_device_pointer(function, "the memory for reordered weights", destination, weights.device);
  const kernels::ReorderParameters p{
      layout,
      weights.codes,
      weights.scales,
      weights.scale_index(),
      code_row_bytes(weights.scheme, shape.columns),
      shape.batch,
      destination,
  };
  visit(weights.scheme, [&](auto scheme) {
    launch_reorder<decltype(scheme)>(function, p, grid_of(layout.tiles_down(), shape.batch),
                                     stream);
  });
}

}  // namespace mxkern::cuda
