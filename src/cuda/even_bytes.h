// cuda/even_bytes.h: grids of kernels that come one behind the other spread evenly.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/launch.h"

namespace mxkern::cuda {

// Shared memory of a kernel that starts early behind others like it, `resident` thread blocks of
// which fit on a multiprocessor. Where not all of the next one's find places beside this one's,
// those that wait take the first places that get free, many of them on few multiprocessors, unless
// no more fit on one than is its share of a grid.
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
