// plan/gemm_cuda.h: how a CUDA device computes a matrix product, as a value: which kernels,
// what is done with the operands before, and where in the working memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "mxkern/core/math.h"
#include "mxkern/plan.h"
#include "plan/decode/plan.h"

namespace mxkern {

struct CudaGemmCapabilities {
  int major = 9;
  int minor = 0;
  int processors = 132;
  bool has_hopper_kernels = true;      // in this build; without them Hopper is like the others
  bool has_blackwell_kernels = false;  // in this build, for the device

  // Thread blocks of products come in pairs.
  constexpr bool is_hopper() const { return major == 9 && has_hopper_kernels && processors > 1; }

  friend constexpr bool operator==(const CudaGemmCapabilities&,
                                   const CudaGemmCapabilities&) = default;
};

// A device by the name of its architecture, "sm_90", with as many multiprocessors as its largest
// GPU in use, and a build with all kernels for it. Throws InvalidArgument.
CudaGemmCapabilities capabilities_of(const std::string& architecture,
                                     const char* function = "explain_gemm");

// The output as it is computed: a batch that shares its right operand is one matrix with more rows
// where memory allows it.
Shape multiplied_shape(const GemmProblem& problem);

// Whether products on such a device read a form.
bool reads(PreparedForm form, const CudaGemmCapabilities& capabilities);

enum class CudaGemmPath : std::uint8_t {
  nothing,          // an output without elements
  few_tokens,       // a 16-bit left operand of few rows, or one expanded to that; decodes weights
  few_folded,       // the same of folded rows, on FP8 tensor cores of Hopper
  folded,           // FP8 tensor cores on rows that hold their scales
  exact,            // bfloat16 tensor cores on expanded rows
  folded_or_exact,  // the device finds out which one is right
  blackwell,        // tensor cores that take block scales
  portable,         // expanded rows on any GPU from compute capability 8.0 on
};

constexpr const char* name_of(CudaGemmPath path) {
  switch (path) {
    case CudaGemmPath::nothing: return "nothing";
    case CudaGemmPath::few_tokens: return "few tokens";
    case CudaGemmPath::few_folded: return "few tokens, folded";
    case CudaGemmPath::folded: return "folded";
    case CudaGemmPath::exact: return "exact";
    case CudaGemmPath::folded_or_exact: return "folded or exact";
    case CudaGemmPath::blackwell: return "blackwell";
    case CudaGemmPath::portable: return "portable";
  }
  return "unknown";
}

// What happens to an operand before it is multiplied.
struct SidePlan {
  bool folds = false;        // into the working memory
  bool expands = false;      // into the working memory
  bool decodes = false;      // while it is multiplied, from codes and scales as they lie
  bool is_prepared = false;  // what was prepared is multiplied
  std::size_t folded = 0;    // where in the working memory
  std::size_t expanded = 0;
  // The product itself makes the rows from this one on; 0: all are made ahead.
  std::int64_t first_rows = 0;
  std::int64_t first_columns = 0;  // and of those rows the columns from this one on; 0: none
  std::size_t progress = 0;        // where in the working memory it counts them
};

// Tensor cores cut off what does not fit when they add, and a float32 output shows it: longer sums
// are computed in parts, each of which is added to the output.
inline constexpr std::int64_t longest_sum = 8192;

struct CudaGemmPlan {
  CudaGemmPath path = CudaGemmPath::nothing;
  const char* reason = "";
  SidePlan left, right;
  std::int64_t sums = 1;  // parts of K that are added up in the output

  // Columns of each of them, but the last one.
  constexpr std::int64_t sum_columns(std::int64_t k) const {
    return sums == 1 ? k : round_up(ceil_div(k, sums), 64);
  }
  // Where in the working memory tiles of a product on Hopper that are divided along K are added up.
  std::size_t part_sums = 0;
  std::int64_t part_bytes = 0;     // 0: no tile is divided
  std::int64_t part_counters = 0;  // words that the kernels ahead of it set to zeros
  // Of a product that is folded or exact: one kernel computes it, and expands the operands itself
  // where it is exact. It counts their rows right ahead of the parts' counters.
  bool is_in_one_kernel = false;
  std::size_t row_counters = 0;
  std::size_t workspace_bytes = 0;
  DecodePlan few = {};          // of few tokens: how they are divided among thread blocks
  std::size_t interleaved = 0;  // of folded ones: where they lie in the order of the weights
};

// Pure: the same arguments give the same plan on any machine. Throws InvalidArgument or Unsupported
// where the precision that is asked for cannot be had.
CudaGemmPlan plan_gemm_cuda(const GemmProblem& problem, const CudaGemmCapabilities& capabilities);

// The plan in words.
GemmExplanation explain(const CudaGemmPlan& plan, const GemmProblem& problem,
                        const CudaGemmCapabilities& capabilities);

}  // namespace mxkern
