// tests/plan/gemm_cuda_test.cc: which kernels a product takes on which GPU, without a GPU.
#include "plan/gemm_cuda.h"

#include <gtest/gtest.h>

#include <string>

#include "cuda/operands/expand.h"
#include "cuda/operands/fold.h"
#include "cuda/gemm/hopper/multiply.h"
#include "mxkern/core/error.h"
#include "mxkern/prepare_operand.h"
#include "tests/support/error_message.h"
#include "tests/support/gemm_case.h"

namespace mxkern {
namespace {

using namespace test;
using Case = GemmCase;

CudaGemmPath path_of(const GemmProblem& problem, const char* architecture = "sm_90") {
  return plan_gemm_cuda(problem, capabilities_of(architecture)).path;
}

template <class Failure>
void expect_no_plan(const std::string& says, const GemmProblem& problem,
                    const CudaGemmCapabilities& capabilities = hopper) {
  test::expect_failure<Failure>(says, [&] { plan_gemm_cuda(problem, capabilities); });
}

TEST(PlanGemmCudaTest, AutomaticFoldsSixteenBitOutputsOfSchemesThatFold) {
  for (const Scheme left : all_schemes) {
    for (const Scheme right : all_schemes) {
      for (const DType out : all_dtypes) {
        const bool folds = cuda::fold_facts(left).can_fold && cuda::fold_facts(right).can_fold &&
                           out != DType::float32;
        EXPECT_EQ(path_of(Case{left, right, out}.problem()),
                  folds ? CudaGemmPath::folded_or_exact : CudaGemmPath::exact)
            << name_of(left) << " " << name_of(right) << " " << name_of(out);
        EXPECT_EQ(path_of(Case{left, right, out, GemmPrecision::exact}.problem()),
                  CudaGemmPath::exact);
      }
    }
  }
}

TEST(PlanGemmCudaTest, FoldedIsForFloatingPointMxOnHopper) {
  const Case folded{.out = DType::float32, .precision = GemmPrecision::folded};
  EXPECT_EQ(path_of(folded.problem()), CudaGemmPath::folded);
  Case bad = folded;
  bad.left = Scheme::mxint8;
  expect_no_plan<InvalidArgument>("precision is folded, but a is mxint8", bad.problem());
  bad = folded;
  bad.right = Scheme::nvfp4;
  expect_no_plan<InvalidArgument>("but b is nvfp4; expected mxfp8", bad.problem());
  const GemmProblem plain_left{plain(DType::bfloat16, {1, 512, 1024}),
                               quantized(Scheme::mxfp8_e4m3, {1, 2048, 1024}), folded.result(),
                               GemmPrecision::folded};
  expect_no_plan<InvalidArgument>("but a is bfloat16", plain_left);
  for (const char* other : {"sm_80", "sm_89", "sm_100", "sm_120"}) {
    expect_no_plan<Unsupported>("precision auto or exact", folded.problem(),
                                capabilities_of(other));
  }
  CudaGemmCapabilities without = hopper;
  without.has_hopper_kernels = false;
  expect_no_plan<Unsupported>("this build no code for 9.0a", folded.problem(), without);
}

TEST(PlanGemmCudaTest, OtherGpusTakeThePortableKernels) {
  for (const char* other : {"sm_80", "sm_86", "sm_89", "sm_100", "sm_120"}) {
    CudaGemmCapabilities capabilities = capabilities_of(other);
    capabilities.has_blackwell_kernels = false;  // in a build without CUTLASS
    const CudaGemmPlan plan = plan_gemm_cuda(Case{}.problem(), capabilities);
    EXPECT_EQ(plan.path, CudaGemmPath::portable) << other;
    EXPECT_TRUE(plan.left.expands && plan.right.expands);
    EXPECT_FALSE(plan.left.folds || plan.right.folds);
  }
  CudaGemmCapabilities old = hopper;
  old.major = 7;
  expect_no_plan<Unsupported>("expected 8.0 or newer", Case{}.problem(), old);
  CudaGemmCapabilities without = hopper;
  without.has_hopper_kernels = false;
  EXPECT_EQ(plan_gemm_cuda(Case{}.problem(), without).path, CudaGemmPath::portable);
}

TEST(PlanGemmCudaTest, BlackwellTakesThePairsOfItsTensorCores) {
  const CudaGemmCapabilities capabilities = capabilities_of("sm_100");
  const auto path = [&](const Case& c) { return plan_gemm_cuda(c.problem(), capabilities).path; };
  EXPECT_EQ(path(Case{}), CudaGemmPath::blackwell);
  EXPECT_EQ(path(Case{.left = Scheme::nvfp4, .right = Scheme::nvfp4}), CudaGemmPath::blackwell);
  EXPECT_EQ(path(Case{.left = Scheme::nvfp4}), CudaGemmPath::portable);
  EXPECT_EQ(path(Case{.out = DType::float16}), CudaGemmPath::portable);
  EXPECT_EQ(path(Case{.precision = GemmPrecision::exact}), CudaGemmPath::portable);
  EXPECT_GT(plan_gemm_cuda(Case{}.problem(), capabilities).workspace_bytes, 0u);
  const GemmProblem problem = Case{}.problem();
  const GemmExplanation text =
      explain(plan_gemm_cuda(problem, capabilities), problem, capabilities);
  EXPECT_NE(text.kernel.find("never executed"), std::string::npos) << text.kernel;
}

// What may be prepared on a device is what its products read.
TEST(PlanGemmCudaTest, FormsThatAreReadAreMultiplied) {
  for (const char* device : {"sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120"}) {
    const CudaGemmCapabilities capabilities = capabilities_of(device);
    const GemmProblem few{plain(DType::bfloat16, {1, 4, 1024}),
                          prepared(PreparedForm::few_tokens, Scheme::mxfp4, {1, 2048, 1024}, false),
                          plain(DType::bfloat16, {1, 4, 2048}), GemmPrecision::automatic};
    if (reads(PreparedForm::few_tokens, capabilities)) {
      EXPECT_EQ(path_of(few, device), CudaGemmPath::few_tokens) << device;
    } else {
      expect_no_plan<InvalidArgument>("without its codes and scales", few, capabilities);
    }
  }
  EXPECT_TRUE(reads(PreparedForm::few_tokens, hopper));
  EXPECT_FALSE(reads(PreparedForm::few_tokens, capabilities_of("sm_120")));
}

// Thread blocks of Hopper's products come in pairs.
TEST(PlanGemmCudaTest, OneMultiprocessorIsLikeOtherGpus) {
  CudaGemmCapabilities one = hopper;
  one.processors = 1;
  EXPECT_EQ(plan_gemm_cuda(Case{}.problem(), one).path, CudaGemmPath::portable);
  EXPECT_FALSE(reads(PreparedForm::folded, one));
  expect_no_plan<Unsupported>("this device has 9.0, and one multiprocessor",
                              Case{.precision = GemmPrecision::folded}.problem(), one);
}

// The same tiles, and so the same bytes, whether the left operand was prepared or is decoded.
TEST(PlanGemmCudaTest, DecodingAsksForTheTilesThatAreMultiplied) {
  for (const Shape& shape : {Shape{2, 260, 8192}, {8, 130, 4096}, {4, 40, 8192}, {3, 1500, 4096}}) {
    for (const std::int64_t n : {4096, 8192, 8704}) {
      const GemmProblem problem{quantized(Scheme::mxfp8_e4m3, shape),
                                quantized(Scheme::mxfp8_e4m3, {1, n, shape.columns}),
                                plain(DType::float32, {shape.batch, shape.rows, n}),
                                GemmPrecision::exact};
      const CudaGemmPlan plan = plan_gemm_cuda(problem, hopper);
      const Shape one = multiplied_shape(problem);
      ASSERT_EQ(one.batch, 1);
      const cuda::TileSm90 tile =
          cuda::tile_sm90(cuda::CoreElement::bfloat16, cuda::CoreElement::bfloat16, 1, one.rows,
                          one.columns, shape.columns, hopper.processors);
      EXPECT_TRUE(!plan.left.decodes || tile.columns == 256) << shape.batch << " x " << shape.rows;
    }
  }
}

TEST(PlanGemmCudaTest, AnOutputWithoutElementsIsNothing) {
  for (const Shape shape : {Shape{0, 4, 64}, Shape{1, 0, 64}}) {
    EXPECT_EQ(path_of(Case{.shape = shape}.problem()), CudaGemmPath::nothing);
  }
  EXPECT_EQ(path_of(Case{.n = 0}.problem()), CudaGemmPath::nothing);
  const CudaGemmPlan sums_of_nothing = plan_gemm_cuda(Case{.shape = {1, 4, 0}}.problem(), hopper);
  EXPECT_EQ(sums_of_nothing.path, CudaGemmPath::portable);
  EXPECT_EQ(sums_of_nothing.workspace_bytes, 0u);
  // Codes of no element may be null.
  PreparedOperand none{PreparedForm::few_tokens, quantized(Scheme::mxfp4, {1, 40, 0}), nullptr, 0};
  none.source.codes = none.source.scales = nullptr;
  const GemmProblem no_codes{plain(DType::bfloat16, {1, 4, 0}), none,
                             plain(DType::float32, {1, 4, 40}), GemmPrecision::exact};
  EXPECT_EQ(path_of(no_codes), CudaGemmPath::portable);
}

TEST(PlanGemmCudaTest, PreparedOperandsAreMultipliedAsTheyAre) {
  const Case c;
  const auto plan_with = [&](PreparedForm form, GemmPrecision precision) {
    return plan_gemm_cuda({quantized(c.left, c.shape), prepared(form, c.right, c.right_shape()),
                           c.result(), precision},
                          hopper);
  };
  CudaGemmPlan plan = plan_with(PreparedForm::folded, GemmPrecision::folded);
  EXPECT_TRUE(plan.left.folds && !plan.left.is_prepared);
  EXPECT_TRUE(!plan.right.folds && plan.right.is_prepared);
  EXPECT_EQ(plan.workspace_bytes, static_cast<std::size_t>(cuda::folded_layout(c.shape).bytes));

  plan = plan_with(PreparedForm::folded, GemmPrecision::automatic);
  EXPECT_EQ(plan.path, CudaGemmPath::folded_or_exact);
  EXPECT_TRUE(!plan.right.folds && plan.right.expands && plan.right.is_prepared);

  plan = plan_with(PreparedForm::expanded, GemmPrecision::exact);
  EXPECT_TRUE(plan.left.expands && !plan.right.expands && plan.right.is_prepared);

  // A form that the product cannot use: the source is there.
  plan = plan_with(PreparedForm::expanded, GemmPrecision::folded);
  EXPECT_TRUE(plan.right.folds && !plan.right.is_prepared);
  plan = plan_with(PreparedForm::few_tokens, GemmPrecision::folded);
  EXPECT_TRUE(plan.right.folds && !plan.right.is_prepared);
}

TEST(PlanGemmCudaTest, WithoutSourceOnlyWhatThePreparedFormCanDo) {
  const Case c;
  const auto problem = [&](GemmPrecision precision) {
    return GemmProblem{prepared(PreparedForm::folded, c.left, c.shape, false),
                       prepared(PreparedForm::folded, c.right, c.right_shape(), false), c.result(),
                       precision};
  };
  EXPECT_EQ(path_of(problem(GemmPrecision::folded)), CudaGemmPath::folded);
  for (const GemmPrecision precision : {GemmPrecision::automatic, GemmPrecision::exact}) {
    expect_no_plan<InvalidArgument>("without its codes and scales", problem(precision));
  }
}

// Whatever a part reads is made ready ahead, for all of them.
TEST(PlanGemmCudaTest, LongSumsOfFloat32OutputsHaveParts) {
  for (const char* device : {"sm_80", "sm_90"}) {
    for (const std::int64_t k : {0, 1, 8192, 8193, 28672, 100000, 1 << 21, (1 << 21) + 65}) {
      for (const DType out : all_dtypes) {
        Case c{Scheme::mxfp8_e4m3, Scheme::mxint8, out, GemmPrecision::exact, {1, 4096, k}, 4096};
        const CudaGemmPlan plan = plan_gemm_cuda(c.problem(), capabilities_of(device));
        EXPECT_EQ(plan.sums > 1, out == DType::float32 && k > 8192) << k;
        EXPECT_LE(plan.sum_columns(k), out == DType::float32 ? 8192 : k);
        EXPECT_GE(plan.sum_columns(k) * plan.sums, k);
        if (plan.sums == 1) continue;
        EXPECT_LT(plan.sum_columns(k) * (plan.sums - 1), k) << "a part without columns";
        EXPECT_TRUE(plan.left.expands && plan.right.expands);
        EXPECT_EQ(plan.left.first_rows + plan.right.first_rows + plan.part_bytes, 0);
      }
    }
  }
}

// Expanded elements are all that an exact product reads, so it is what those without codes are for.
TEST(PlanGemmCudaTest, ExpandedWithoutSourceIsExact) {
  const Case c;
  for (const char* device : {"sm_80", "sm_90", "sm_100"}) {
    for (const bool left_too : {false, true}) {
      const auto problem = [&](PreparedForm form, GemmPrecision precision) {
        return GemmProblem{left_too ? GemmOperand(prepared(form, c.left, c.shape, false))
                                    : GemmOperand(quantized(c.left, c.shape)),
                           prepared(form, c.right, c.right_shape(), false), c.result(), precision};
      };
      for (const GemmPrecision precision : {GemmPrecision::automatic, GemmPrecision::exact}) {
        const CudaGemmPlan plan =
            plan_gemm_cuda(problem(PreparedForm::expanded, precision), capabilities_of(device));
        const bool hopper_products = capabilities_of(device).is_hopper();
        EXPECT_EQ(plan.path, hopper_products ? CudaGemmPath::exact : CudaGemmPath::portable);
        EXPECT_TRUE(plan.right.is_prepared && !plan.right.expands && !plan.right.folds);
        EXPECT_EQ(plan.left.is_prepared, left_too);
      }
    }
  }
  for (const PreparedForm form : {PreparedForm::expanded, PreparedForm::few_tokens}) {
    const GemmProblem folded{quantized(c.left, c.shape),
                             prepared(form, c.right, c.right_shape(), false), c.result(),
                             GemmPrecision::folded};
    expect_no_plan<InvalidArgument>("without its codes and scales", folded);
  }
}

TEST(PlanGemmCudaTest, FewTokensOfSixteenBits) {
  const auto path_with = [&](std::int64_t rows, DType dtype, PreparedForm form,
                             const char* architecture = "sm_90", std::int64_t batch = 1) {
    const Shape shape{batch, rows, 1024}, weights{1, 2048, 1024};
    return path_of({plain(dtype, shape), prepared(form, Scheme::mxfp4, weights),
                    plain(DType::bfloat16, {batch, rows, 2048}), GemmPrecision::automatic},
                   architecture);
  };
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    const auto form = PreparedForm::few_tokens;
    EXPECT_EQ(path_with(1, dtype, form), CudaGemmPath::few_tokens);
    EXPECT_EQ(path_with(256, dtype, form), CudaGemmPath::few_tokens);
    EXPECT_EQ(path_with(257, dtype, form), CudaGemmPath::few_tokens);
    EXPECT_EQ(path_with(2048, dtype, form), CudaGemmPath::few_tokens);
    EXPECT_EQ(path_with(2049, dtype, form), CudaGemmPath::exact);
    EXPECT_EQ(path_with(257, dtype, form, "sm_100"), CudaGemmPath::portable);
    EXPECT_EQ(path_with(64, dtype, form, "sm_90", 4), CudaGemmPath::few_tokens);
    EXPECT_EQ(path_with(64, dtype, form, "sm_90", 33), CudaGemmPath::exact);
    EXPECT_EQ(path_with(1, dtype, form, "sm_80"), CudaGemmPath::portable);
    for (const PreparedForm other :
         {PreparedForm::source, PreparedForm::folded, PreparedForm::expanded}) {
      EXPECT_EQ(path_with(1, dtype, other), CudaGemmPath::exact);
    }
  }
  EXPECT_EQ(path_with(1, DType::float32, PreparedForm::few_tokens), CudaGemmPath::exact);
  // Each matrix of a batch has weights of its own, and as many tokens as it has rows.
  EXPECT_EQ(path_of({plain(DType::bfloat16, {2, 8, 4096}),
                     prepared(PreparedForm::few_tokens, Scheme::mxfp4, {2, 2048, 4096}),
                     plain(DType::bfloat16, {2, 8, 2048}), GemmPrecision::automatic}),
            CudaGemmPath::few_tokens);
  // Tokens that do not start on 16 bytes are copied first.
  const Shape weights{1, 2048, 1024};
  const auto workspace = [&](std::uintptr_t offset) {
    return plan_gemm_cuda({plain(DType::bfloat16, {1, 8, 1024}, offset),
                           prepared(PreparedForm::few_tokens, Scheme::mxfp4, weights),
                           plain(DType::bfloat16, {1, 8, 2048}), GemmPrecision::automatic},
                          hopper)
        .workspace_bytes;
  };
  EXPECT_EQ(workspace(0), 0u);
  const GemmProblem problem{plain(DType::bfloat16, {1, 8, 1024}),
                            prepared(PreparedForm::few_tokens, Scheme::mxfp4, weights),
                            plain(DType::bfloat16, {1, 8, 2048}), GemmPrecision::automatic};
  const GemmExplanation text = explain(plan_gemm_cuda(problem, hopper), problem, hopper);
  EXPECT_NE(text.kernel.find("takes 8 tokens"), std::string::npos) << text.kernel;
  EXPECT_EQ(workspace(2), 8u * 1024u * 2u);
  // Hopper's tensor cores read them as they lie as well, as many as there are.
  const GemmProblem more{plain(DType::bfloat16, {1, 100, 1000}),
                         prepared(PreparedForm::few_tokens, Scheme::mxfp4, {1, 2048, 1000}),
                         plain(DType::bfloat16, {1, 100, 2048}), GemmPrecision::automatic};
  const CudaGemmPlan plan = plan_gemm_cuda(more, hopper);
  EXPECT_EQ(plan.workspace_bytes, 0u);
  const std::string kernel = explain(plan, more, hopper).kernel;
  EXPECT_NE(kernel.find("wgmma"), std::string::npos) << kernel;
}

TEST(PlanGemmCudaTest, AlignedBfloat16IsReadAsItLies) {
  const Case c;
  const auto plan_of = [&](const Buffer& a) {
    return plan_gemm_cuda(
        {a, quantized(c.right, c.right_shape()), c.result(), GemmPrecision::automatic}, hopper);
  };
  EXPECT_FALSE(plan_of(plain(DType::bfloat16, c.shape)).left.expands);
  EXPECT_TRUE(plan_of(plain(DType::bfloat16, c.shape, 2)).left.expands);
  const CudaGemmPlan half = plan_of(plain(DType::float16, c.shape));
  const CudaGemmPlan single = plan_of(plain(DType::float32, c.shape));
  EXPECT_TRUE(half.left.expands && single.left.expands);
  EXPECT_GT(single.workspace_bytes, half.workspace_bytes);
}

// Nothing that is still read is written over: the regions of two sides are apart, and of a side
// that is folded and perhaps expanded, the spreads stay.
TEST(PlanGemmCudaTest, WorkspaceRegions) {
  for (const Shape shape : {Shape{1, 1, 32}, Shape{3, 37, 160}, Shape{1, 4096, 4096}}) {
    for (const Scheme scheme : {Scheme::mxfp8_e4m3, Scheme::mxfp4}) {
      const GemmProblem problem =
          Case{.left = scheme, .right = scheme, .shape = shape, .n = 77}.problem();
      const CudaGemmPlan plan = plan_gemm_cuda(problem, hopper);
      const cuda::RowScaledLayout folded = cuda::folded_layout(shape);
      const auto expanded_bytes =
          static_cast<std::size_t>(cuda::expanded_layout(problem.left).bytes);
      EXPECT_EQ(plan.left.folded % 256, 0u);
      EXPECT_EQ(plan.left.expanded % 256, 0u);
      EXPECT_GE(plan.left.folded + static_cast<std::size_t>(folded.spreads),
                plan.left.expanded + expanded_bytes);
      const std::size_t left_end =
          std::max(plan.left.folded + static_cast<std::size_t>(folded.bytes),
                   plan.left.expanded + expanded_bytes);
      EXPECT_LE(left_end, std::min(plan.right.folded, plan.right.expanded));
      EXPECT_LE(plan.right.expanded +
                    static_cast<std::size_t>(cuda::expanded_layout(problem.right).bytes),
                plan.workspace_bytes);
      EXPECT_LE(
          plan.right.folded +
              static_cast<std::size_t>(cuda::folded_layout({shape.batch, 77, shape.columns}).bytes),
          plan.workspace_bytes);
    }
  }
}

TEST(PlanGemmCudaTest, TheExplanationNamesWhatMatters) {
  const GemmProblem problem = Case{}.problem();
  const GemmExplanation text = explain(plan_gemm_cuda(problem, hopper), problem, hopper);
  EXPECT_EQ(text.device, "sm_90");
  EXPECT_EQ(text.path, "folded or exact");
  for (const char* part : {"FP8 wgmma", "bfloat16 wgmma", "tiles of", "clusters", "128"}) {
    EXPECT_NE(text.kernel.find(part), std::string::npos) << text.kernel;
  }
  EXPECT_NE(text.left.find("folded in the call"), std::string::npos) << text.left;
  EXPECT_NE(text.error.find("5e-4"), std::string::npos) << text.error;
  EXPECT_NE(text.error.find("of both signs"), std::string::npos) << text.error;
  EXPECT_GT(text.workspace_bytes, 0u);
  Case longer;
  longer.shape.columns = 16384;
  const auto of_long_sums = [&] {
    const GemmProblem wanted = longer.problem();
    return explain(plan_gemm_cuda(wanted, hopper), wanted, hopper);
  };
  EXPECT_NE(of_long_sums().error.find("2e-5 * 16384 / 8192 exact"), std::string::npos);
  longer.out = DType::float32;
  EXPECT_EQ(of_long_sums().error, "relative L2 <= 2e-5, for elements of both signs");
  EXPECT_NE(of_long_sums().kernel.find("K in 2 parts"), std::string::npos);
  EXPECT_THROW(capabilities_of("sm_75"), InvalidArgument);
}

}  // namespace
}  // namespace mxkern
