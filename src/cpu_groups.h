// cpu_groups.h: grouped products on the CPU, a group after the other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "groups.h"
#include "mxkern/tensor/block_scaled.h"

namespace mxkern {

// Checked arguments; the ends are not yet.
struct CpuGroups {
  const GemmOperand& a;
  const BlockScaled& b;
  const Groups& groups;
  const Buffer& out;
  const GroupedGemmOptions& options;

  std::int64_t begin(std::int64_t group) const { return group == 0 ? 0 : groups.ends[group - 1]; }
  std::int64_t end(std::int64_t group) const { return groups.ends[group]; }

  // The bias of a group, which is put into `view`; or null.
  const Buffer* bias_of(std::int64_t group, Buffer& view) const;
};

// Throws where folded products are asked for, or an operand was prepared without its source.
void check_groups_of_cpu(const GemmOperand& a, const GemmRightOperand& b, GemmPrecision precision);

// Throws InvalidArgument where ends decrease, or lie outside of the rows or columns, or those of
// columns inside of a block.
void check_ends(const CpuGroups& p);

// Checks the ends.
std::size_t workspace_bytes(const CpuGroups& p);

std::size_t workspace_bytes_of_rows(const CpuGroups& p);
void multiply_groups_of_rows(const CpuGroups& p, void* workspace);

std::size_t workspace_bytes_of_columns(const CpuGroups& p);
void multiply_groups_of_columns(const CpuGroups& p, void* workspace);

}  // namespace mxkern
