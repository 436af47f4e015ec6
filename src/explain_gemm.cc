// explain_gemm.cc: the plan of a product in words, for this device or another.
#include "check_gemm.h"
#include "cpu/gemm.h"
#include "explained_device.h"
#include "gemm_operand.h"
#include "gemm_with.h"
#include "mxkern/gemm.h"
#include "plan_gemm_cuda.h"

namespace mxkern {
namespace {

GemmExplanation explain_cpu(const GemmOperand& a, const GemmRightOperand& b, const Buffer& out,
                            const GemmOptions& options) {
  check_gemm_of_cpu(a, b, options.precision);
  GemmExplanation text;
  text.device = "cpu";
  text.path = "exact";
  text.left = std::string(kind_of(a)) + ", read as it lies";
  text.right = std::string(name_of(source_of(b).scheme)) + ", read as it lies";
  text.error = "that of a float32 sum";
  if (out.shape.size() == 0) {
    text.path = "nothing";
    text.reason = "the output has no elements";
    return text;
  }
  const GemmPlan plan = plan_gemm(gemm_problem(a, source_of(b), out), cpu::gemm_capabilities());
  text.reason = plan.reason;
  text.kernel = describe(plan);
  text.workspace_bytes = plan.workspace_bytes;
  return text;
}

}  // namespace

GemmExplanation explain_gemm(const GemmOperand& given_a, const GemmRightOperand& b,
                             const Buffer& given_out, const GemmOptions& options,
                             const std::string& device) {
  check_gemm_kinds(given_a, b, given_out, options);
  const GemmOperand a = with_strides(given_a);
  const Buffer out = with_strides(given_out);
  if (explains_cpu(device, out.device)) return explain_cpu(a, b, out, options);
  const CudaGemmCapabilities capabilities = explained_gpu("explain_gemm", device, out.device);
  const CudaGemmProblem problem(a, b, out, options);
  return explain(plan_gemm_cuda(problem, capabilities), problem, capabilities);
}

}  // namespace mxkern
