// cuda/gemm/device_groups.h: the groups of a grouped product, and what belongs to them.
#pragma once

#include <cstdint>

namespace mxkern::cuda {

// On the device. Group i has the rows, or the columns of both operands, from ends[i - 1] to
// ends[i].
struct DeviceGroups {
  const std::int32_t* ends = nullptr;  // [count]
  std::int64_t count = 0;
  const float* factors = nullptr;  // [count], of the outputs; null: 1
  std::int64_t bias_step = 0;      // from CoreFinish::bias of a group to the next one's
  bool are_complete = false;       // the ends and weights, before the kernel ahead is over
};

}  // namespace mxkern::cuda
