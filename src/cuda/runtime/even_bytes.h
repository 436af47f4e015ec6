// cuda/runtime/even_bytes.h: shared memory with which grids spread evenly over the device.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/runtime/launch.h"
#include "mxkern/core/math.h"

namespace mxkern::cuda {

// Shared memory with which the thread blocks of a grid spread evenly over the device, where all of
// them fit at once, `resident` a multiprocessor: a kernel that starts early gets multiprocessors
// one after the other, and the first ones would take as many as fit.
inline int spread_bytes(const char* function, std::int64_t blocks, int resident, int bytes) {
  constexpr int reserved = 2048;  // of each thread block, with what it has without asking
  const std::int64_t processors = processor_count(function);
  const auto most = static_cast<int>(ceil_div(blocks, processors));  // a multiprocessor
  if (most < 2 || most >= resident || !can_start_early(function)) return bytes;
  const int all = attribute_of(function, cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  return std::max(bytes, all / most - reserved);
}

// The same for a kernel behind others like it, unless the next one's thread blocks find places
// beside this one's: those that find none take the first that get free, several on one
// multiprocessor. It may have tables, which it has without asking.
inline int even_bytes(const char* function, dim3 grid, int resident, int bytes = 0) {
  const std::int64_t blocks = std::int64_t{grid.x} * grid.y * grid.z;
  const std::int64_t processors = processor_count(function);
  const auto share = static_cast<int>(ceil_div(blocks, processors));
  const bool both_fit = 2 * blocks <= resident * processors;
  if (both_fit || share >= resident || !can_start_early(function)) return bytes;
  // With what each has without asking, one more does not fit.
  const int all = attribute_of(function, cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  return std::max(bytes, all / (share + 1));
}

}  // namespace mxkern::cuda
