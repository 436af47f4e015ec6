// plan/decode/problem.h: the tokens and the weights of a product of few tokens.
#pragma once

#include <cstdint>

#include "mxkern/plan.h"
#include "plan/core_rows.h"
#include "plan/decode/limits.h"
#include "plan/decode/plan.h"
#include "plan/gemm_cuda.h"

namespace mxkern {

// A left operand as tokens: plain, or what expand makes of a quantized one, which lacks a power of
// two for each row.
inline PlannedTensor tokens_of(const PlannedOperand& left) {
  if (left.is_plain) return left.plain;
  const cuda::RowScaledLayout rows = cuda::expanded_layout(left);
  PlannedTensor x(DType::bfloat16, left.shape);
  x.row_stride = rows.row_bytes / 2;
  x.batch_stride = rows.batch_bytes / 2;
  return x;
}

// As many products as there are, and the tokens of each.
struct DecodeProblem {
  PlannedTensor x;
  const PlannedOperand& weights;
  std::int64_t batch, tokens;

  explicit DecodeProblem(const GemmProblem& problem)
      : x(tokens_of(problem.left)), weights(problem.right) {
    const bool merges = cuda::merges_tokens(x, weights.shape, problem.out);
    batch = merges ? 1 : x.shape.batch;
    tokens = merges ? x.shape.batch * x.shape.rows : x.shape.rows;
  }
  bool may_use_sm90(const CudaGemmCapabilities& capabilities) const {
    return capabilities.is_hopper() && may_use_decode_sm90(x.dtype, tokens);
  }
  DecodePlan plan(const CudaGemmCapabilities& capabilities) const {
    return plan_decode_on(may_use_sm90(capabilities), weights.scheme, batch, tokens,
                          weights.shape.rows, weights.shape.columns, capabilities.processors,
                          x.dtype);
  }
};

}  // namespace mxkern
