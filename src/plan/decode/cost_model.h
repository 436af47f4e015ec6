// plan/decode/cost_model.h: how long a product of few tokens takes by a plan, as measured on an
// H200.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/numerics/scheme.h"
#include "mxkern/tensor/decode_layout.h"
#include "plan/decode/plan.h"

namespace mxkern {

// `batch` products of `tokens` rows with weights that lie as `layout` says.
struct DecodeWork {
  DecodeLayout layout;
  std::int64_t batch, tokens;
  int processors;
  std::uint32_t down, across;  // tiles
  double weight_bytes;
  bool has_float_scales;    // not powers of two
  bool has_halves = false;  // float16 tokens, to which weights take longer to decode

  DecodeWork(Scheme scheme, std::int64_t batch_, std::int64_t tokens_, std::int64_t rows,
             std::int64_t columns, int processors_);

  std::int64_t groups_of_tokens(const DecodePlan& plan) const {
    if (tokens <= plan.tokens) return batch;
    return batch * ceil_div(tokens, plan.tokens);
  }
  std::int64_t blocks(const DecodePlan& plan) const {
    const std::uint32_t groups = ceil_div(down, static_cast<std::uint32_t>(plan.row_tiles));
    return groups * groups_of_tokens(plan) << plan.log2_ranks;
  }
  // Whether groups of rows, of some that do not exist too, come to as many thread blocks as there
  // are multiprocessors.
  bool fills_processors(const DecodePlan& plan) const {
    return processors % (groups_of_tokens(plan) << plan.log2_ranks) == 0;
  }
};

// Microseconds.
double decode_time(const DecodeWork& work, const DecodePlan& plan);
double decode_sm90_time(const DecodeWork& work, const DecodePlan& plan);

}  // namespace mxkern
