// mxkern/kernels/gemm/row_groups.h: the rows of a grouped product, as its kernels are told.
#pragma once

#include <cstdint>

namespace mxkern::kernels {

// Rows that lie one behind the other belong to groups: those from ends[i - 1], or 0, to ends[i] to
// group i, those behind the last end to none.
struct GroupEnds {
  const std::int32_t* ends;  // on the device
  int groups;
  int rows;  // of all groups, and of none
};

}  // namespace mxkern::kernels
