// cuda/quantize/scales.cu: launches of the scale layout kernel.
#include "cuda/backend.h"
#include "cuda/runtime/launch.h"
#include "mxkern/kernels/quantize/swizzle_scales.cuh"

namespace mxkern::cuda {

void convert_scales(const std::uint8_t* from, ScaleLayout from_layout, std::uint8_t* to,
                    ScaleLayout to_layout, std::int64_t batch, std::int64_t rows,
                    std::int64_t blocks, Device device, Stream stream) {
  const char* function = to_layout == ScaleLayout::swizzled ? "swizzle_scales" : "unswizzle_scales";
  const DeviceScope scope(device, stream, function);
  check_device_pointer(function, "the source", from, device);
  check_device_pointer(function, "the destination", to, device);
  const ScaleIndex from_index{rows, blocks, from_layout};
  const ScaleIndex to_index{rows, blocks, to_layout};
  const std::int64_t tiles = ceil_div(to_index.size() * batch, kernels::swizzle_threads);
  launch<Start::early>(function, kernels::convert_scales_kernel, grid_of(tiles),
                       kernels::swizzle_threads, 0, stream, from, from_index, to, to_index, batch);
}

}  // namespace mxkern::cuda
