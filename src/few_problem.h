// few_problem.h: the tokens and the weights of a product of few tokens.
#pragma once

#include <cstdint>
#include <variant>

#include "cuda/expand.h"
#include "cuda/multiply_few.h"
#include "gemm_operand.h"
#include "plan_few.h"
#include "plan_gemm_cuda.h"

namespace mxkern {

// A left operand as tokens: plain, or what expand makes of a quantized one in `memory`, which lacks
// a power of two for each row.
inline Buffer tokens_of(const GemmOperand& left, void* memory) {
  if (const auto* plain = std::get_if<Buffer>(&left)) return *plain;
  const cuda::RowScaledLayout rows = cuda::expanded_layout(as_source(left));
  Buffer x = Buffer::dense(memory, DType::bfloat16, shape_of(left), quantized_of(left)->device);
  x.row_stride = rows.row_bytes / 2;
  x.batch_stride = rows.batch_bytes / 2;
  return x;
}

// As many products as there are, and the tokens of each.
struct FewProblem {
  Buffer x;
  const BlockScaled& weights;
  std::int64_t batch, tokens;

  explicit FewProblem(const CudaGemmProblem& problem)
      : x(tokens_of(problem.left, nullptr)), weights(*quantized_of(problem.right)) {
    const bool merges = cuda::merges_tokens(x, weights.shape, problem.out);
    batch = merges ? 1 : x.shape.batch;
    tokens = merges ? x.shape.batch * x.shape.rows : x.shape.rows;
  }
  bool may_use_sm90(const CudaGemmCapabilities& capabilities) const {
    return capabilities.is_hopper() && may_use_few_sm90(x.dtype, tokens);
  }
};

}  // namespace mxkern
