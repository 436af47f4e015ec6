// mxkern/expert_layer.h: the feed-forward layer of a mixture of experts as one function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "mxkern/core/platform.h"
#include "mxkern/grouped_gemm.h"
#include "mxkern/quantize.h"
#include "mxkern/swiglu.h"

namespace mxkern {

// The weights of E experts, of any schemes and forms.
struct ExpertWeights {
  GemmRightOperand gate_up;  // [E, 2 F, H]: a row for each gate and for each that it lets through
  GemmRightOperand down;     // [E, N, F]
  // Biases [E, 1, 2 F] and [E, 1, N], and factors [E], mean what they do in GroupedGemmOptions.
  const Buffer* gate_up_bias = nullptr;
  const Buffer* down_bias = nullptr;
  const float* gate_up_factors = nullptr;
  const float* down_factors = nullptr;
};

// Which tokens go to which expert: M copies of tokens, sorted by expert. All of it lies on the
// device of the tokens.
struct ExpertRouting {
  RowGroups experts;                   // where the copies for each expert end
  const std::int32_t* rows = nullptr;  // [M]: the token that each is a copy of, as
                                       // GroupedGemmOptions::rows
  const float* weights = nullptr;      // [M]: what each counts in the sum of its token; null: 1
  std::int64_t copies = 0;             // M
};

struct ExpertLayerOptions {
  SwigluOptions activation;
  // The scheme to which a plain x and the values between the products are quantized; if empty,
  // neither is quantized.
  std::optional<Scheme> scheme;
  ScaleRule scale_rule = ScaleRule::rceil;
  GemmPrecision precision = GemmPrecision::exact;  // of both products: exact or folded
};

// out[t] = the sum of weights[i] * y[i] over the copies i of token t, in the order of i, with
//   y = grouped_gemm(h, down),  h = swiglu(grouped_gemm(x, gate_up, rows)),
// where h and, if it is plain, x are quantized to options.scheme. x [1, T, H], out [1, T, N]. What
// lies between has the dtype of out: so do the results of both products, and of swiglu. The bytes
// are those of quantize, grouped_gemm, swiglu and combine one after another. Copies behind the last
// expert's end count for nothing. Deterministic.
//
// Ends and rows are read as grouped_gemm and combine read them: the CPU copies them when the call
// begins, and throws InvalidArgument for what is wrong with them. A CUDA device reads them when its
// turn comes, the call waits for nothing, and tokens become NaN.
//
// workspace: at least expert_layer_workspace_bytes of the same arguments, on out's device, aligned
// to 64 on the CPU, to 256 on CUDA. It and out lie in memory of their own. Throws InvalidArgument,
// and Unsupported; errors of a product alone name grouped_gemm.
MXKERN_API void expert_layer(const GemmOperand& x, const ExpertWeights& weights,
                             const ExpertRouting& routing, const Buffer& out,
                             const ExpertLayerOptions& options, Workspace workspace,
                             Stream stream = {});

// The CPU reads the ends for it.
MXKERN_API std::size_t expert_layer_workspace_bytes(const GemmOperand& x,
                                                    const ExpertWeights& weights,
                                                    const ExpertRouting& routing, const Buffer& out,
                                                    const ExpertLayerOptions& options = {});

}  // namespace mxkern
