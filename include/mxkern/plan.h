// mxkern/plan.h: how a matrix product is computed, as a value: made once, looked at, run often.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "mxkern/core/device.h"
#include "mxkern/core/platform.h"
#include "mxkern/gemm.h"
#include "mxkern/tensor/planned_operand.h"

namespace mxkern {

// A product without memory: all of a call of gemm that a plan depends on, and no addresses. Views
// of operands and of the output convert to what stands for them here.
struct GemmProblem {
  PlannedOperand left;
  PlannedOperand right;  // never plain
  PlannedTensor out;
  GemmPrecision precision = GemmPrecision::automatic;
  bool adds_output = false;  // what is in it before, times a beta that is not 0

  GemmProblem() = default;
  GemmProblem(const PlannedOperand& a, const PlannedOperand& b, const PlannedTensor& result,
              GemmPrecision wanted = GemmPrecision::automatic, bool adds = false)
      : left(a), right(b), out(result), precision(wanted), adds_output(adds) {}
  GemmProblem(const PlannedOperand& a, const PlannedOperand& b, const PlannedTensor& result,
              const GemmOptions& options)
      : GemmProblem(a, b, result, options.precision, options.beta != 0.0f) {}

  friend bool operator==(const GemmProblem&, const GemmProblem&) = default;
};

// A plan of gemm: a plain value, which plan_gemm makes. What it says of itself, it says in the
// words of GemmExplanation.
class MXKERN_API GemmPlan {
 public:
  const GemmProblem& problem() const { return problem_; }
  std::size_t workspace_bytes() const { return workspace_bytes_; }
  std::string device() const;
  std::string path() const;
  std::string reason() const;
  std::string error() const;

 private:
  friend struct GemmPlanParts;  // the library's own view of it
  GemmPlan() = default;

  GemmProblem problem_;
  std::size_t workspace_bytes_ = 0;
  Device device_;
  bool is_here_ = false;  // for this device of this machine
  alignas(8) unsigned char how_[336] = {};
};

// The plan of gemm with the same arguments, options included. Shapes, schemes, dtypes and forms are
// checked, and that out's device can compute it; addresses are for gemm to check, except that their
// alignment counts. Throws InvalidArgument, and Unsupported where a device is not.
MXKERN_API GemmPlan plan_gemm(const GemmOperand& a, const GemmRightOperand& b, const Buffer& out,
                              const GemmOptions& options = {});

// The plan of a problem, for a device of this machine.
MXKERN_API GemmPlan plan_gemm(const GemmProblem& problem, Device device);

// The plan of a problem for "cpu", or "sm_90" and the like: a GPU that need not be here, and a
// build with the kernels for it.
MXKERN_API GemmPlan plan_gemm(const GemmProblem& problem, const std::string& device);

// The plan in words: what explain_gemm says of the same product.
MXKERN_API GemmExplanation explain(const GemmPlan& plan);

// gemm by a plan. `a`, `b`, `out` and `options` are those of plan.problem(), wherever they lie:
// anything else throws InvalidArgument, and so does a device for which the plan was not made.
// workspace: at least plan.workspace_bytes(), as gemm wants it. Memory is checked as by gemm, which
// is plan_gemm and this.
MXKERN_API void gemm(const GemmPlan& plan, const GemmOperand& a, const GemmRightOperand& b,
                     const Buffer& out, const GemmOptions& options, Workspace workspace,
                     Stream stream = {});

// A grouped product without memory: `groups` of rows, or of columns.
struct GroupedGemmProblem {
  PlannedOperand left;
  PlannedOperand right;
  PlannedTensor out;
  std::int64_t groups = 0;
  bool of_columns = false;
  GemmPrecision precision = GemmPrecision::exact;
};

// The working memory of a grouped product on a CUDA device of this machine. On the CPU it depends
// on the ends of the groups, and this throws Unsupported.
MXKERN_API std::size_t grouped_gemm_workspace_bytes(const GroupedGemmProblem& problem,
                                                    Device device);

}  // namespace mxkern
