// few_plans.h: the plan of a product of few tokens by the kernels that a device has, remembered.
#pragma once

#include <cstdint>

#include "plan_few.h"

namespace mxkern {

// All that a plan depends on.
struct FewQuestion {
  Scheme scheme;
  DType x_dtype;
  bool may_use_sm90;
  int processors;
  std::int64_t batch, tokens, rows, columns;

  friend constexpr bool operator==(const FewQuestion&, const FewQuestion&) = default;

  FewPlan answer() const {
    return may_use_sm90 ? plan_few_sm90(scheme, batch, tokens, rows, columns, processors, x_dtype)
                        : plan_few(scheme, batch, tokens, rows, columns, processors);
  }
};

// The same. A plan takes 1 to 4 us, as long as a launch, and the layers of a model ask for the same
// ones again and again: a thread keeps the last ones.
FewPlan remembered_plan(const FewQuestion& question);

}  // namespace mxkern
