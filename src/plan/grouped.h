// plan/grouped.h: how a product whose rows or columns belong to groups is computed on a CUDA
// device, as a value.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mxkern/grouped_gemm.h"
#include "mxkern/swiglu.h"
#include "mxkern/core/dtype.h"
#include "mxkern/core/math.h"
#include "mxkern/numerics/scheme.h"
#include "mxkern/tensor/planned_operand.h"
#include "plan/decode/plan.h"
#include "plan/gemm_cuda.h"

namespace mxkern {

// Rows [rows, columns] of so many groups, and their weights [groups, outputs, columns]. How many
// rows a group has is known to the device alone.
struct GroupedQuestion {
  Scheme scheme;
  bool has_sm90;  // the tensor cores of Hopper's warpgroups, and code for them
  int processors;
  std::int64_t groups, rows, outputs, columns;
};

// Warpgroups of a thread block that has so many rows, more than 16.
constexpr int grouped_warpgroups(int rows) { return rows <= 64 ? 2 : 4; }

// Pure. By one of the kernels for few tokens, which multiply rows of one group at a time: 8, 16,
// 32, 64 or 128.
DecodePlan plan_grouped(const GroupedQuestion& question);

// The same of folded rows: 32, 64 or 128.
DecodePlan plan_grouped_folded(const GroupedQuestion& question);

// The SwiGLU of a product's outputs, of their dtype and of half as many columns, which is wanted
// instead of them. Where no kernel makes it of the sums, the outputs are memory for the product.
struct GatedOutput {
  Buffer out;
  SwigluOptions options;
};

// How many times at most a group's rows, or those of no group, are taken `size` at a time.
constexpr std::int64_t places_of_groups(std::int64_t rows, std::int64_t groups, std::int64_t size) {
  return lower_of(rows, rows / size + groups + 1);
}

enum class GroupedPath : std::uint8_t {
  few_tokens,  // of rows: decodes weights, for rows of one group at a time
  few_folded,  // the same of folded rows, on FP8 tensor cores of Hopper
  folded,      // FP8 tensor cores of Hopper on rows that hold their scales
  expanded,    // bfloat16 tensor cores of Hopper on expanded rows
  portable,    // expanded rows on any GPU from compute capability 8.0 on
};

// The forms in which a kernel reads its operands.
constexpr bool is_folded(GroupedPath path) {
  return path == GroupedPath::folded || path == GroupedPath::few_folded;
}
constexpr PreparedForm left_form_of(GroupedPath path) {
  return is_folded(path) ? PreparedForm::folded : PreparedForm::expanded;
}
constexpr PreparedForm right_form_of(GroupedPath path) {
  if (path == GroupedPath::few_tokens || path == GroupedPath::few_folded)
    return PreparedForm::few_tokens;
  return left_form_of(path);
}

// What a device does, and where in the working memory.
struct CudaGroupedPlan {
  GroupedPath path = GroupedPath::portable;
  bool makes_left = false;   // rows as the kernel reads them, in `left`
  bool makes_right = false;  // the form that the kernel reads, in `right`
  std::size_t left = 0;      // of such rows, or of tokens that are copied
  std::size_t right = 0;
  std::size_t interleaved = 0;  // of folded rows that meet decoded weights
  std::size_t workspace_bytes = 0;
};

// Whether a product copies rows of a itself, on the way to the kernel.
constexpr bool copies_rows(const CudaGroupedPlan& plan) {
  return plan.path == GroupedPath::few_folded && !plan.makes_left;
}

// Pure. Checked arguments; of groups the ends are not looked at.
// Throws InvalidArgument where there is more than kernels count, that or Unsupported where the
// precision that is asked for cannot be had, and Unsupported where an operand was prepared in
// another form without its source.
CudaGroupedPlan plan_grouped_cuda(const PlannedOperand& a, const PlannedOperand& b,
                                  const Groups& groups, GemmPrecision precision,
                                  const CudaGemmCapabilities& capabilities);

}  // namespace mxkern
