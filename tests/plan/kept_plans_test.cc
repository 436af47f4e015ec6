// tests/plan/kept_plans_test.cc: plans that a caller keeps are those that would be made.
#include "python/bindings/kept_plans.h"

#include <gtest/gtest.h>

#include "tests/support/error_message.h"
#include "tests/support/gemm_reference.h"

namespace mxkern {
namespace {

using test::PlainTensor;
using test::QuantizedOperand;

// More products than are kept, each asked for again once others have taken its place.
TEST(KeptPlans, AreThoseThatWouldBeMade) {
  bindings::KeptPlans plans;
  for (int turn = 0; turn < 2; ++turn) {
    for (std::int64_t rows = 1; rows <= 40; ++rows) {
      for (const Scheme scheme : {Scheme::mxfp8_e4m3, Scheme::mxfp4, Scheme::nvfp4}) {
        QuantizedOperand a(scheme, {1, rows, 64}, ScaleLayout::row_major);
        QuantizedOperand b(scheme, {1, 24, 64}, ScaleLayout::row_major);
        PlainTensor out(DType::float32, {1, rows, 24});
        for (const float beta : {0.0f, 1.0f}) {
          const GemmOptions options{.beta = beta};
          const GemmPlan made = plan_gemm(a.operand(), b.quantized(), out.buffer(), options);
          for (int again = 0; again < 2; ++again) {
            const GemmPlan& kept = plans.plan(a.operand(), b.quantized(), out.buffer(), options);
            EXPECT_EQ(kept.problem(), made.problem());
            EXPECT_EQ(kept.workspace_bytes(), made.workspace_bytes());
          }
        }
      }
    }
  }
}

// What has no plan is refused each time, and leaves none of another behind.
TEST(KeptPlans, ErrorsAreNotKept) {
  bindings::KeptPlans plans;
  QuantizedOperand a(Scheme::mxfp4, {1, 8, 64}, ScaleLayout::row_major);
  QuantizedOperand b(Scheme::mxfp4, {1, 24, 64}, ScaleLayout::row_major);
  PlainTensor out(DType::float32, {1, 8, 24}), lower(DType::float32, {1, 7, 24});
  plans.plan(a.operand(), b.quantized(), out.buffer(), {});
  for (int again = 0; again < 2; ++again) {
    test::expect_failure<InvalidArgument>("gemm: out has shape [1, 7, 24]", [&] {
      plans.plan(a.operand(), b.quantized(), lower.buffer(), {});
    });
  }
  EXPECT_EQ(plans.plan(a.operand(), b.quantized(), out.buffer(), {}).problem().out.shape,
            out.view.shape);
}

}  // namespace
}  // namespace mxkern
