// mxkern/gemm.h: the block-scaled matrix product.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

#include "mxkern/core/buffer.h"
#include "mxkern/core/platform.h"
#include "mxkern/tensor/block_scaled.h"
#include "mxkern/tensor/prepared_operand.h"

namespace mxkern {

// The left operand: quantized, a plain tensor, or prepared ahead.
using GemmOperand = std::variant<BlockScaled, Buffer, PreparedOperand>;

// The right operand.
using GemmRightOperand = std::variant<BlockScaled, PreparedOperand>;

struct Workspace {
  void* data = nullptr;
  std::size_t bytes = 0;
};

// How a product is computed on Hopper. Elsewhere folded throws Unsupported, and products are exact,
// with one exception: on Blackwell, in a build with CUTLASS, automatic may take tensor cores that
// take block scales. Those kernels are compiled, never executed; their accuracy is not known.
enum class GemmPrecision : std::uint8_t {
  automatic,  // folded for 16-bit outputs of rows whose scales lie close enough together; else
              // exact
  exact,      // every element exact in bfloat16; the float32 sum is the only error
  folded,     // block scales folded into FP8 elements, sums kept apart every 128 along K
};

inline constexpr GemmPrecision all_gemm_precisions[] = {
    GemmPrecision::automatic, GemmPrecision::exact, GemmPrecision::folded};

constexpr const char* name_of(GemmPrecision precision) {
  switch (precision) {
    case GemmPrecision::automatic: return "auto";
    case GemmPrecision::exact: return "exact";
    case GemmPrecision::folded: return "folded";
  }
  return "unknown";
}

struct GemmOptions {
  float alpha = 1.0f;
  float beta = 0.0f;             // not 0: beta * out is added to what is written to out
  const Buffer* bias = nullptr;  // [1, 1, N], any dtype: added to every row
  GemmPrecision precision = GemmPrecision::automatic;
  // Products of few tokens read a prepared b while kernels ahead of them in the stream still run.
  // False where one of those may be what writes it: they wait, which takes a microsecond or two.
  bool right_is_complete = true;
};

// out[M, N] = alpha * a[M, K] . b[N, K]^T + beta * out + bias, summed in float32, rounded once to
// out's dtype. Batches are equal, or b has one matrix that serves every one of a's. Any scheme with
// any scheme; a may be plain float32, float16 or bfloat16. K = 0 leaves beta * out + bias.
// Deterministic. Inf and NaN propagate as in any product; a poisoned block reaches its row or
// column only.
//
// Error before the last rounding, as relative L2 to the product of the decoded operands, elements
// of both signs: exact <= 2e-5, on CUDA with 16-bit outputs or few tokens for K up to 8192, and
// K / 8192 times as much beyond; folded <= 5e-4 where a row's block scales lie within its scheme's
// limit, which automatic looks at on the device: the call waits for nothing. The CPU: a float32
// sum. docs/guide/gemm.md has what sums of one sign lose.
//
// workspace: at least gemm_workspace_bytes of the same arguments, options included, on out's
// device; aligned to 64 on the CPU, to 256 on CUDA. It and out lie in memory of their own. Throws
// InvalidArgument, and Unsupported where a device is not.
MXKERN_API void gemm(const GemmOperand& a, const GemmRightOperand& b, const Buffer& out,
                     const GemmOptions& options, Workspace workspace, Stream stream = {});

// Asks as gemm does, for what it would refuse too: codes, scales and out have to have addresses.
MXKERN_API std::size_t gemm_workspace_bytes(const GemmOperand& a, const GemmRightOperand& b,
                                            const Buffer& out, const GemmOptions& options = {});

// How gemm computes a product, in words for people.
struct GemmExplanation {
  std::string device;  // "cpu", "sm_90"
  std::string path;    // "folded", "exact", "folded or exact", "few tokens", "portable", ...
  std::string reason;
  std::string left, right;  // what is done with the operands before they are multiplied
  std::string kernel;       // tile, cluster, stages
  std::string error;        // what can be expected
  std::size_t workspace_bytes = 0;
};

// device: empty for where out is; "cpu"; or "sm_90" and the like, for a GPU that need not be here
// and a build with the kernels for it.
// Nothing is read or written: addresses may be null, also PreparedOperand::data, for a plan without
// what prepare_operand would write. In the source of a PreparedOperand null codes say, as in the
// product, that it was not kept. Alignment of addresses counts where the product takes one way or
// another by it, for another device too. That addresses are aligned at all, devices, memory that
// overlaps and outputs that are read-only are for the product to refuse.
MXKERN_API GemmExplanation explain_gemm(const GemmOperand& a, const GemmRightOperand& b,
                                        const Buffer& out, const GemmOptions& options = {},
                                        const std::string& device = {});

}  // namespace mxkern
