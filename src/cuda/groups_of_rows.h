// cuda/groups_of_rows.h: which rows of a grouped product belong to which group.
#pragma once

#include <cstdint>

namespace mxkern::cuda {

// Rows, and what belongs to their groups. On the device.
struct GroupsOfRows {
  const std::int32_t* ends = nullptr;  // [count]: group i has the rows from ends[i - 1] to ends[i]
  std::int64_t count = 0;
  const float* factors = nullptr;  // [count], of the outputs; null: 1
  std::int64_t bias_step = 0;      // from CoreFinish::bias of a group to the next one's
};

}  // namespace mxkern::cuda
