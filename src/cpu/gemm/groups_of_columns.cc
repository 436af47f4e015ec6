// cpu/gemm/groups_of_columns.cc: products on the CPU in which each group of columns has an output
// of its own.
#include <algorithm>
#include <cstring>

#include "cpu/runtime/parallel.h"
#include "cpu/gemm/groups.h"
#include "cpu/gemm/task.h"
#include "mxkern/core/float_environment.h"
#include "mxkern/core/math.h"

namespace mxkern {
namespace {

CpuGemmPlan plan_of(const CpuGroups& p, GroupRange columns) {
  CpuGemmProblem problem = cpu_problem(p.a, p.b, p.out);  // codes, whatever was prepared
  problem.batch = 1;
  problem.m = p.out.shape.rows;
  problem.k = columns.end - columns.begin;
  return plan_gemm_cpu(problem, cpu::gemm_capabilities());
}

// The columns of a group as a matrix. Its scales are copied, as they lie in tiles or behind one
// another only with those of all groups; they are 3 % of the codes.
class ColumnSlice {
 public:
  ColumnSlice(const BlockScaled& q, std::int64_t begin, std::int64_t end)
      : all_(&q),
        first_(begin / block()),
        slice_{q.shape.rows, ceil_div(end - begin, block()), ScaleLayout::row_major} {}
  ColumnSlice(const Buffer&, std::int64_t, std::int64_t) {}

  std::int64_t scale_bytes() const { return all_ == nullptr ? 0 : slice_.size(); }

  void apply(cpu::GemmMatrix& matrix, std::int64_t begin, std::int64_t end,
             std::uint8_t* scales) const {
    const std::int64_t bits = all_ == nullptr ? 8 * static_cast<std::int64_t>(size_of(matrix.dtype))
                                              : facts_of(matrix.scheme).bits;
    matrix.data += begin * bits / 8;
    matrix.k = end - begin;
    if (all_ == nullptr) return;
    copy_scales(scales);
    matrix.scales = scales;
    matrix.scale_index = slice_;
  }

 private:
  std::int64_t block() const { return facts_of(all_->scheme).block; }

  void copy_scales(std::uint8_t* out) const {
    if (slice_.size() == 0) return;  // then there may be no memory
    const ScaleIndex index = all_->scale_index();
    constexpr std::int64_t rows_at_least = 64;  // of a thread
    cpu::parallel_for(slice_.rows, rows_at_least, [&](std::int64_t row, std::int64_t last) {
      for (; row < last; ++row) {
        std::uint8_t* to = out + slice_.offset(row, 0);
        if (index.layout == ScaleLayout::row_major) {
          std::memcpy(to, all_->scales + index.offset(row, first_),
                      static_cast<std::size_t>(slice_.blocks));
          continue;
        }
        for (std::int64_t i = 0; i < slice_.blocks; ++i) {
          to[i] = all_->scales[index.offset(row, first_ + i)];
        }
      }
    });
  }

  const BlockScaled* all_ = nullptr;  // null: plain elements
  std::int64_t first_ = 0;            // block
  ScaleIndex slice_{};
};

// The product of one group, and where the copies of its scales lie in the working memory.
class ColumnGroup {
 public:
  ColumnGroup(const CpuGroups& p, std::int64_t group, GroupRange columns)
      : p_(p),
        group_(group),
        begin_(columns.begin),
        end_(columns.end),
        left_(visit_source(p.a, [&](const auto& left) { return ColumnSlice(left, begin_, end_); })),
        right_(p.b, begin_, end_),
        plan_(plan_of(p, columns)) {}

  std::size_t workspace_bytes() const { return scale_bytes() + plan_.workspace_bytes; }

  void multiply(void* workspace) const {
    auto* memory = static_cast<std::uint8_t*>(workspace);
    cpu::GemmTask task = p_.task(group_, p_.b, nullptr);
    task.out += group_ * task.out_batch_bytes;
    left_.apply(task.left, begin_, end_, memory);
    right_.apply(task.right, begin_, end_, memory + left_.scale_bytes());
    cpu::gemm(task, plan_, memory + scale_bytes());
  }

 private:
  // Behind them memory is aligned.
  std::size_t scale_bytes() const {
    return static_cast<std::size_t>(round_up(left_.scale_bytes() + right_.scale_bytes(), 64));
  }

  const CpuGroups& p_;
  std::int64_t group_, begin_, end_;
  ColumnSlice left_, right_;
  CpuGemmPlan plan_;
};

}  // namespace

std::size_t workspace_bytes_of_columns(const CpuGroups& p, std::int64_t group, GroupRange columns) {
  return ColumnGroup(p, group, columns).workspace_bytes();
}

void multiply_groups_of_columns(const CpuGroups& p, void* workspace) {
  const FloatEnvironment environment;
  for (std::int64_t i = 0; i < p.groups.count; ++i) {
    ColumnGroup(p, i, p.range(i)).multiply(workspace);
  }
}

}  // namespace mxkern
