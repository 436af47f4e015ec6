// cpu_groups.cc: what groups of rows and groups of columns have in common on the CPU.
#include "cpu_groups.h"

#include "gemm_operand.h"
#include "gemm_with.h"
#include "mxkern/core/error.h"

namespace mxkern {

const Buffer* CpuGroups::bias_of(std::int64_t group, Buffer& view) const {
  if (options.bias == nullptr) return nullptr;
  view = *options.bias;
  view.data = static_cast<std::uint8_t*>(view.data) +
              group * view.batch_stride * static_cast<std::int64_t>(size_of(view.dtype));
  view.shape.batch = 1;
  return &view;
}

void check_ends(const CpuGroups& p) {
  const bool are_columns = p.groups.are_columns();
  const std::int64_t most = are_columns ? p.b.shape.columns : p.out.shape.rows;
  const char* what = are_columns ? " columns" : " rows";
  for (std::int64_t i = 0; i < p.groups.count; ++i) {
    const std::int64_t end = p.end(i);
    check(end >= p.begin(i) && end <= most, "grouped_gemm: ends[", i, "] is ", end, "; expected ",
          p.begin(i), " to ", most, ", as ends do not decrease and a has ", most, what);
    check(!are_columns || end % group_columns == 0 || end == most, "grouped_gemm: ends[", i,
          "] is ", end, "; expected a multiple of ", group_columns, ", or K = ", most,
          ", as blocks have elements of one group; pad groups with rows of zeros before they are "
          "quantized");
  }
}

void check_groups_of_cpu(const GemmOperand& a, const GemmRightOperand& b, GemmPrecision precision) {
  check_precision_of_cpu("grouped_gemm", precision);
  check_sources_for_cpu("grouped_gemm", a, b);
}

std::size_t workspace_bytes(const CpuGroups& p) {
  check_ends(p);
  if (p.out.shape.size() == 0) return 0;
  return p.groups.are_columns() ? workspace_bytes_of_columns(p) : workspace_bytes_of_rows(p);
}

}  // namespace mxkern
