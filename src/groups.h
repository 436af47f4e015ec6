// groups.h: the groups of a grouped product, be they of rows or of columns.
#pragma once

#include <cstdint>

#include "mxkern/grouped_gemm.h"

namespace mxkern {

enum class GroupAxis : std::uint8_t { rows, columns };

// Ends of groups of columns are multiples of this, or K: what a block of MX has, and two of NVFP4.
inline constexpr int group_columns = 32;

struct Groups {
  const std::int32_t* ends;
  std::int64_t count;
  GroupAxis axis;

  // Implicit: where either kind will do, either is passed.
  Groups(const RowGroups& groups) : ends(groups.ends), count(groups.count), axis(GroupAxis::rows) {}
  Groups(const ColumnGroups& groups)
      : ends(groups.ends), count(groups.count), axis(GroupAxis::columns) {}

  bool are_columns() const { return axis == GroupAxis::columns; }
};

}  // namespace mxkern
