// gemm.cc: the matrix product: arguments checked, a plan made, the device's kernels called.
#include "mxkern/gemm.h"

#include <cstdint>

#include "check_gemm.h"
#include "cpu/gemm.h"
#include "gemm_operand.h"
#include "gemm_task.h"
#include "gemm_with.h"
#include "mxkern/core/error.h"
#include "mxkern/core/float_environment.h"
#if defined(MXKERN_HAS_CUDA)
#include "cuda/gemm.h"
#endif

namespace mxkern {

void check_precision_of_cpu(const char* function, GemmPrecision precision) {
  check<Unsupported>(precision != GemmPrecision::folded, function,
                     ": precision is folded, and the CPU's products are exact; leave precision "
                     "out");
}

void check_gemm_of_cpu(const GemmOperand& a, const GemmRightOperand& b, GemmPrecision precision) {
  check_precision_of_cpu("gemm", precision);
  check_sources_for_cpu("gemm", a, b);
}

void check_sources_for_cpu(const char* function, const GemmOperand& a, const GemmRightOperand& b) {
  const auto check_source = [&](const char* argument, const PreparedOperand* p) {
    const bool is_there = p == nullptr || p->form == PreparedForm::source || p->has_source();
    check<Unsupported>(is_there, function, ": ", argument,
                       " was prepared without its codes and scales, which are what the CPU "
                       "multiplies; keep the source, or multiply on the device");
  };
  check_source("a", prepared_of(a));
  check_source("b", prepared_of(b));
}

GemmProblem gemm_problem(const GemmOperand& a, const BlockScaled& b, const Buffer& out) {
  GemmProblem problem{.batch = out.shape.batch,
                      .m = out.shape.rows,
                      .n = out.shape.columns,
                      .k = b.shape.columns,
                      .right_scheme = b.scheme,
                      .out_dtype = out.dtype};
  if (merges_batch(a, b, out)) {
    problem.m *= problem.batch;
    problem.batch = 1;
  }
  if (const BlockScaled* left = quantized_of(a)) {
    problem.left_scheme = left->scheme;
  } else {
    problem.left_is_plain = true;
    problem.left_dtype = std::get<Buffer>(a).dtype;
  }
  return problem;
}

void gemm_with(const GemmPlan& plan, const GemmOperand& a, const BlockScaled& b, const Buffer& out,
               const GemmOptions& options, Workspace workspace) {
  check_gemm_workspace(workspace, plan.workspace_bytes, a, b, out, options);
  const FloatEnvironment environment;
  cpu::gemm(make_task(a, b, out, options), plan, workspace.data);
}

void gemm(const GemmOperand& given_a, const GemmRightOperand& b, const Buffer& given_out,
          const GemmOptions& options, Workspace workspace, Stream stream) {
  check_gemm(given_a, b, given_out, options);
  const GemmOperand a = with_strides(given_a);
  const Buffer out = with_strides(given_out);
#if defined(MXKERN_HAS_CUDA)
  if (out.device.type == DeviceType::cuda) {
    return cuda::gemm(a, b, out, options, workspace, stream);
  }
#endif
  static_cast<void>(stream);  // the CPU has finished when the call returns
  check_gemm_of_cpu(a, b, options.precision);
  if (out.shape.size() == 0) return;
  const BlockScaled& right = source_of(b);
  const GemmPlan plan = plan_gemm(gemm_problem(a, right, out), cpu::gemm_capabilities());
  gemm_with(plan, a, right, out, options, workspace);
}

std::size_t gemm_workspace_bytes(const GemmOperand& given_a, const GemmRightOperand& b,
                                 const Buffer& given_out, const GemmOptions& options) {
  check_gemm(given_a, b, given_out, options);
  const GemmOperand a = with_strides(given_a);
  const Buffer out = with_strides(given_out);
  if (out.shape.size() == 0) return 0;
#if defined(MXKERN_HAS_CUDA)
  if (out.device.type == DeviceType::cuda) return cuda::gemm_workspace_bytes(a, b, out, options);
#endif
  check_gemm_of_cpu(a, b, options.precision);
  return plan_gemm(gemm_problem(a, source_of(b), out), cpu::gemm_capabilities()).workspace_bytes;
}

}  // namespace mxkern
