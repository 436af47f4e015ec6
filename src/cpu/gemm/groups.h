// cpu/gemm/groups.h: grouped products on the CPU, a group after the other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/gemm/gemm.h"
#include "check/gemm_operand.h"
#include "mxkern/grouped_gemm.h"
#include "mxkern/tensor/block_scaled.h"

namespace mxkern {

// From `begin` to `end`: rows or columns of a group.
struct GroupRange {
  std::int64_t begin;
  std::int64_t end;
};

// Checked arguments; the ends are not yet.
struct CpuGroups {
  const GemmOperand& a;
  const GemmRightOperand& right;
  const Groups& groups;
  const Buffer& out;
  const GroupedGemmOptions& options;

  const BlockScaled& b = source_of(right);

  // Returns the range of a group. Requires ends that no other thread writes to: see copy_ends.
  GroupRange range(std::int64_t group) const {
    return {group == 0 ? 0 : groups.ends[group - 1], groups.ends[group]};
  }

  // The arguments of a group's product, with all of a and out.
  cpu::GemmTask task(std::int64_t group, const BlockScaled& matrix, const void* panels) const;
};

// Throws where folded products are asked for, or an operand was prepared without its source.
void check_groups_of_cpu(const CpuGroups& p);

// The memory of a product, of which the first ends_bytes are for a copy of the ends. Reads each end
// once and throws InvalidArgument where ends decrease, or lie outside of the rows or columns, or
// those of columns inside of a block.
std::size_t workspace_bytes(const CpuGroups& p);
std::size_t ends_bytes(const Groups& groups);

// Copies the ends to `memory` and returns the groups with these. Another thread may write to the
// caller's ends at any time, and the ends that are checked have to be the ones that are used.
Groups copy_ends(const Groups& groups, void* memory);

// workspace_bytes_of_* returns the memory that the product of one group takes. multiply_groups_of_*
// computes the products of all groups, with memory for the largest of them.
std::size_t workspace_bytes_of_rows(const CpuGroups& p, GroupRange rows);
void multiply_groups_of_rows(const CpuGroups& p, void* workspace);

std::size_t workspace_bytes_of_columns(const CpuGroups& p, std::int64_t group, GroupRange columns);
void multiply_groups_of_columns(const CpuGroups& p, void* workspace);

}  // namespace mxkern
