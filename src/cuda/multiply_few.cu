// cuda/multiply_few.cu: plans and launches of products of few tokens.
#include "cuda/multiply_few.h"

#include <algorithm>

#include "cuda/few_launch.h"
#include "cuda/launch.h"
#include "mxkern/kernels/copy_tokens.cuh"
#include "mxkern/kernels/gemm_few.cuh"

namespace mxkern::cuda {
namespace {

// A batch of tokens whose weights are the same is one matrix, where memory allows it.
bool is_one_matrix(const Buffer& x) {
  return x.shape.batch == 1 || x.batch_stride == x.shape.rows * x.row_stride;
}

Buffer merged(Buffer x) {
  x.shape.rows *= x.shape.batch;
  x.shape.batch = 1;
  return x;
}

std::int64_t x_copy_bytes(const Buffer& x, const DecodeLayout& layout) {
  return round_up(x.shape.batch * x.shape.rows * layout.tiles_across() *
                      DecodeLayout::tile_columns * 2,
                  DecodeLayout::alignment);
}

std::int64_t tokens_of(const FewPlan& plan) { return plan.tokens; }

}  // namespace

FewPlan plan_few(const Buffer& x, Scheme scheme, const Shape& weights, int processors) {
  FewPlan plan{};
  const DecodeLayout layout = DecodeLayout::of(scheme, weights.rows, weights.columns);
  const std::int64_t rows = x.shape.rows;
  plan.tokens = rows <= 8 ? 8 : rows <= 16 ? 16 : rows <= 32 ? 32 : 64;
  plan.token_tiles = static_cast<int>(ceil_div(rows, tokens_of(plan)));
  return plan;
}

}  // namespace mxkern::cuda
