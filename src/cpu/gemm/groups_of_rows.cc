// cpu/gemm/groups_of_rows.cc: products on the CPU in which each group of rows has weights of its
// own.
#include <algorithm>

#include "cpu/gemm/groups.h"
#include "cpu/gemm/task.h"
#include "mxkern/core/float_environment.h"
#include "mxkern/tensor/panel_layout.h"

namespace mxkern {
namespace {

// One group's matrix.
BlockScaled matrix_of(BlockScaled q, std::int64_t group) {
  if (q.codes == nullptr) {  // prepared, and not kept
    q.shape.batch = 1;
    return q;
  }
  q.codes += group * q.shape.rows * code_row_bytes(q.scheme, q.shape.columns);
  q.scales += group * q.scale_index().size();
  q.shape.batch = 1;
  return q;
}

CpuGemmPlan plan_of(const CpuGroups& p, GroupRange rows) {
  CpuGemmProblem problem = cpu_problem(p.a, p.right, p.out);
  problem.m = rows.end - rows.begin;
  return plan_gemm_cpu(problem, cpu::gemm_capabilities());
}

cpu::GemmTask task_of(const CpuGroups& p, std::int64_t group, GroupRange rows) {
  const PanelLayout layout(p.b.scheme, p.b.shape.rows, p.b.shape.columns);
  const auto* panels = static_cast<const std::uint8_t*>(panels_of(p.right));
  if (panels != nullptr) panels += group * layout.matrix_bytes;
  cpu::GemmTask task = p.task(group, matrix_of(p.b, group), panels);
  task.first_row = rows.begin;
  task.left.rows = rows.end;
  return task;
}

// Rows from this one on, of which there are no products.
template <class T>
void scale_rows(const Buffer& out, std::int64_t row, float beta) {
  for (; row < out.shape.rows; ++row) {
    T* const own = static_cast<T*>(out.data) + row * out.row_stride;
    std::transform(own, own + out.shape.columns, own, [beta](T before) {
      return beta == 0.0f ? T{} : from_float<T>(beta * to_float(before));
    });
  }
}

void scale_rows(const Buffer& out, std::int64_t row, float beta) {
  switch (out.dtype) {
    case DType::float32: return scale_rows<float>(out, row, beta);
    case DType::float16: return scale_rows<float16>(out, row, beta);
    case DType::bfloat16: return scale_rows<bfloat16>(out, row, beta);
  }
}

}  // namespace

std::size_t workspace_bytes_of_rows(const CpuGroups& p, GroupRange rows) {
  return rows.begin < rows.end ? plan_of(p, rows).workspace_bytes : 0;
}

void multiply_groups_of_rows(const CpuGroups& p, void* workspace) {
  const FloatEnvironment environment;
  GroupRange rows{0, 0};
  for (std::int64_t i = 0; i < p.groups.count; ++i) {
    rows = p.range(i);
    if (rows.begin < rows.end) cpu::gemm(task_of(p, i, rows), plan_of(p, rows), workspace);
  }
  scale_rows(p.out, rows.end, p.options.beta);
}

}  // namespace mxkern
