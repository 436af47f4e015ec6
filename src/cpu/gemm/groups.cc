// cpu/gemm/groups.cc: what groups of rows and groups of columns have in common on the CPU.
#include "cpu/gemm/groups.h"

#include <algorithm>
#include <atomic>

#include "check/gemm_operand.h"
#include "cpu/gemm/task.h"
#include "check/gemm.h"
#include "mxkern/core/error.h"
#include "mxkern/core/math.h"

namespace mxkern {
namespace {

// Reads an end exactly once: another thread may write to it meanwhile, and a compiler could read an
// ordinary integer again.
std::int32_t read_end(const Groups& groups, std::int64_t group) {
  auto& end = const_cast<std::int32_t&>(groups.ends[group]);
  return std::atomic_ref<std::int32_t>(end).load(std::memory_order_relaxed);
}

void check_range(const CpuGroups& p, std::int64_t group, GroupRange range) {
  const bool are_columns = p.groups.of_columns;
  const std::int64_t most = are_columns ? p.b.shape.columns : p.out.shape.rows;
  check(range.end >= range.begin && range.end <= most, "grouped_gemm: ends[", group, "] is ",
        range.end, "; expected ", range.begin, " to ", most, ", as ends do not decrease and a has ",
        most, are_columns ? " columns" : " rows");
  check(!are_columns || range.end % group_columns == 0 || range.end == most, "grouped_gemm: ends[",
        group, "] is ", range.end, "; expected a multiple of ", group_columns, ", or K = ", most,
        ", as blocks have elements of one group; pad groups with rows of zeros before they are "
        "quantized");
}

}  // namespace

cpu::GemmTask CpuGroups::task(std::int64_t group, const BlockScaled& matrix,
                              const void* panels) const {
  GemmOptions own;
  own.alpha = options.alpha;
  own.beta = options.beta;
  Buffer bias;
  if (options.bias != nullptr) {
    bias = *options.bias;
    bias.data = static_cast<std::uint8_t*>(bias.data) +
                group * bias.batch_stride * static_cast<std::int64_t>(size_of(bias.dtype));
    own.bias = &bias;
  }
  return make_task(a, matrix, panels, out, own,
                   options.factors == nullptr ? 1.0 : options.factors[group]);
}

void check_groups_of_cpu(const CpuGroups& p) {
  check_precision_of_cpu("grouped_gemm", p.options.precision);
  check_sources_for_cpu("grouped_gemm", p.a, p.right, !p.groups.of_columns);
}

std::size_t ends_bytes(const Groups& groups) {
  const std::int64_t bytes = groups.count * static_cast<std::int64_t>(sizeof *groups.ends);
  return static_cast<std::size_t>(round_up(bytes, 64));  // memory behind them is aligned
}

Groups copy_ends(const Groups& groups, void* memory) {
  auto* ends = static_cast<std::int32_t*>(memory);
  for (std::int64_t i = 0; i < groups.count; ++i) ends[i] = read_end(groups, i);
  Groups own = groups;
  own.ends = ends;
  return own;
}

std::size_t workspace_bytes(const CpuGroups& p) {
  const bool is_empty = p.out.shape.size() == 0;
  std::size_t most = 0;
  GroupRange range{0, 0};
  for (std::int64_t i = 0; i < p.groups.count; ++i) {
    range = {range.end, read_end(p.groups, i)};
    check_range(p, i, range);
    if (is_empty) continue;
    most = std::max(most, p.groups.of_columns ? workspace_bytes_of_columns(p, i, range)
                                              : workspace_bytes_of_rows(p, range));
  }
  return is_empty ? 0 : ends_bytes(p.groups) + most;
}

}  // namespace mxkern
