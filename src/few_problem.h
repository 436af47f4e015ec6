// few_problem.h: the tokens and the weights of a product of few tokens.
#pragma once

#include <cstdint>
#include <variant>

#include "gemm_operand.h"
#include "plan_few.h"
#include "plan_gemm_cuda.h"

namespace mxkern {

// A batch that shares its weights is one matrix of tokens.
struct FewProblem {
  const Buffer& x;
  const BlockScaled& weights;
  std::int64_t batch, tokens;

  explicit FewProblem(const CudaGemmProblem& problem)
      : x(std::get<Buffer>(problem.left)), weights(*quantized_of(problem.right)) {
    const bool shares = weights.shape.batch == 1;
    batch = shares ? 1 : x.shape.batch;
    tokens = shares ? x.shape.batch * x.shape.rows : x.shape.rows;
  }
  bool may_use_sm90(const CudaGemmCapabilities& capabilities) const {
    return capabilities.is_hopper() && may_use_few_sm90(x.dtype, tokens);
  }
};

}  // namespace mxkern
