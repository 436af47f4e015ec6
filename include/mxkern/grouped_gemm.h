// mxkern/grouped_gemm.h: the matrix products in which each group of rows has weights of its own,
// and in which each group of columns has an output of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "mxkern/core/platform.h"
#include "mxkern/gemm.h"

namespace mxkern {

// Rows that lie one behind the other, sorted by group: group i has those from ends[i - 1], or 0, to
// ends[i], and may have none.
struct RowGroups {
  const std::int32_t* ends = nullptr;  // [count], on the device of the rows
  std::int64_t count = 0;
};

// The same of the columns of both operands: group i has those from ends[i - 1], or 0, to ends[i].
// Every end is a multiple of 32, so that blocks have elements of one group, or K.
struct ColumnGroups {
  const std::int32_t* ends = nullptr;  // [count], on the device of the operands
  std::int64_t count = 0;
};

// Groups of either kind, which become this.
struct Groups {
  const std::int32_t* ends;
  std::int64_t count;
  bool of_columns;

  Groups(const RowGroups& rows) : ends(rows.ends), count(rows.count), of_columns(false) {}
  Groups(const ColumnGroups& columns)
      : ends(columns.ends), count(columns.count), of_columns(true) {}
};

// Ends of groups of columns are multiples of this, or K: what a block of MX has, and two of NVFP4.
inline constexpr int group_columns = 32;

struct GroupedGemmOptions {
  float alpha = 1.0f;
  float beta = 0.0f;  // not 0: beta * out is added to what is written to out
  // [count] on out's device: what the products of each group are multiplied by as well, such as the
  // tensor scale of each matrix of NVFP4 weights.
  const float* factors = nullptr;
  // [count, 1, N], any dtype: added to each row of the group, or of the group's output.
  const Buffer* bias = nullptr;
  // exact or folded: on Hopper, of mxfp8, mxfp6 and mxfp4, by FP8 tensor cores. Which of them rows
  // allow is not looked at, so automatic is refused.
  GemmPrecision precision = GemmPrecision::exact;
  // Groups of rows: null, or [M] on out's device, for an a of T rows, of which row m of the product
  // copies row rows[m]: as a mixture of experts sends a token to several of them. -1: a row of
  // zeros. What is quantized or prepared has T rows then. Rows behind the last end do not count.
  // The CPU throws InvalidArgument for other numbers than -1 to T - 1; on a CUDA device such a row
  // becomes NaN.
  const std::int32_t* rows = nullptr;
  // CUDA: the ends of groups and b are complete whenever the kernel ahead in the stream lets this
  // one start, as they are if they were when it was launched and it waited for what lay ahead of
  // it. Then both may be read before that kernel is over. Where it is not true, what happens is
  // undefined.
  bool groups_are_complete = false;
};

// out[m, :] = alpha * factors[g] * a[m, :] . b[g, :, :]^T + beta * out[m, :] + bias[g, :] for the
// rows m of group g: the linear layers of a mixture of experts, whose tokens are sorted by expert.
// a [1, M, K], b [count, N, K], out [1, M, N]. Rows behind the last end become beta * out, which
// is zeros without a beta. Any scheme with any scheme; a may be plain float32, float16 or bfloat16.
// Summed in float32, rounded once to out's dtype; as exact as gemm with the same precision is.
// Deterministic.
//
// Groups may be of columns: out[g, :, :] = alpha * factors[g] * a[:, k] . b[:, k]^T + beta * out[g,
// :, :] + bias[g, :] over the columns k of group g. These are gradients of the weights of such
// layers, of rows that were quantized along the tokens (quantize_columns); beta = 1 adds them to
// those of earlier batches. a [1, M, K], b [1, N, K], out [count, M, N]. Columns behind the last
// end belong to no product, and a group without columns has sums of 0. Exact products are computed
// from the form expanded of both operands, folded ones from the form folded. An operand's row has
// one power of two for all groups there: a group whose scales lie 100 octaves below the largest one
// of the row counts as zeros.
//
// The CPU copies the ends to its workspace when the call begins, and throws InvalidArgument where
// they decrease, lie outside of the rows or columns, or those of columns inside of a block. A CUDA
// device reads them when its turn comes, the call waits for nothing, and without
// groups_are_complete they may come from a kernel ahead in the stream; all of out becomes NaN where
// they do. With groups of rows compute capability 9.0 to 11.x reads b fastest from the form
// few_tokens, others, and all of them where a is float32, from the form expanded; folded products
// read both operands from the form folded. Any other form with a source will do, and is made into
// these in the call. (Other GPUs than 9.0: compiled, never executed.)
//
// workspace: at least grouped_gemm_workspace_bytes of the same arguments, on out's device; aligned
// to 64 on the CPU, to 256 on CUDA. It and out lie in memory of their own. Throws InvalidArgument,
// and Unsupported where a device is not, or has no folded products.
MXKERN_API void grouped_gemm(const GemmOperand& a, const GemmRightOperand& b, const Groups& groups,
                             const Buffer& out, const GroupedGemmOptions& options,
                             Workspace workspace, Stream stream = {});

// The CPU reads the ends for it.
MXKERN_API std::size_t grouped_gemm_workspace_bytes(const GemmOperand& a, const GemmRightOperand& b,
                                                    const Groups& groups, const Buffer& out,
                                                    const GroupedGemmOptions& options = {});

// How grouped_gemm computes a product, as explain_gemm says it of gemm, for a device as there:
// kinds, shapes and the alignment of addresses count, and they may be null. Ends are read on the
// CPU alone, for workspace_bytes, which is 0 where they are null there. Most errors name
// grouped_gemm.
MXKERN_API GemmExplanation explain_grouped_gemm(const GemmOperand& a, const GemmRightOperand& b,
                                                const Groups& groups, const Buffer& out,
                                                const GroupedGemmOptions& options = {},
                                                const std::string& device = {});

}  // namespace mxkern
