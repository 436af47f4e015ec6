// mxkern/kernels/quantize/swizzle_scales.cuh: block scales from one layout to the other.
#pragma once

#include <cstdint>

#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/tensor/scale_layout.h"

namespace mxkern::kernels {

inline constexpr int swizzle_threads = 256;

// One byte a thread, in the order of the destination. Padding becomes 0.
static __global__ void __launch_bounds__(swizzle_threads)
    convert_scales_kernel(const std::uint8_t* from, ScaleIndex from_index, std::uint8_t* to,
                          ScaleIndex to_index, std::int64_t batch) {
  wait_for_kernels_ahead();
  let_dependents_start();
  const std::int64_t size = to_index.size();
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * swizzle_threads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * swizzle_threads + threadIdx.x;
       i < size * batch; i += step) {
    const ScaleCoordinate at = to_index.coordinate(i % size);
    const bool inside = at.row < to_index.rows && at.block < to_index.blocks;
    to[i] = inside ? from[i / size * from_index.size() + from_index.offset(at.row, at.block)] : 0;
  }
}

}  // namespace mxkern::kernels
