// mxkern/custom.h: quantization by schemes of the user's own, and rounding to any format.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mxkern/core/buffer.h"
#include "mxkern/core/platform.h"
#include "mxkern/gemm.h"
#include "mxkern/numerics/any_codec.h"
#include "mxkern/numerics/any_scale.h"
#include "mxkern/tensor/any_scheme.h"

namespace mxkern {

// A plain tensor, which may hold float64 too: `dtype` says nothing then.
struct AnyBuffer : Buffer {
  bool is_float64 = false;

  AnyBuffer() = default;
  AnyBuffer(const Buffer& buffer) : Buffer(buffer) {}
  AnyBuffer(const Buffer& buffer, bool holds_float64) : Buffer(buffer), is_float64(holds_float64) {}
};

// The view of a tensor that is quantized by a scheme of the user's own; as BlockScaled. Codes lie
// in AnyScheme::code_row_bytes a row; a scale takes as many bytes as its format. tensor_scale is
// null, one float32, or one for each row.
struct AnyBlockScaled {
  AnyScheme scheme;
  Shape shape;
  ScaleLayout scale_layout = ScaleLayout::row_major;
  void* codes = nullptr;
  void* scales = nullptr;
  float* tensor_scale = nullptr;
  Device device;
};

struct AnyOptions {
  AnyRoundingOptions rounding;
  AnyScaleOptions scale;
  std::uint64_t seed = 0, offset = 0;  // of stochastic rounding, as in QuantizeOptions
  // The rows of x are columns of the tensor whose elements the random words belong to.
  bool words_are_transposed = false;
  // Blocks of one row: as many rows as a block has columns share a scale, which is written for
  // each of them.
  bool square = false;
  // In row-major order: scales that are taken as they are, or the largest magnitudes of blocks.
  // A NaN or Inf poisons its block nevertheless.
  const void* scales = nullptr;
  const float* block_amaxes = nullptr;
  // For schemes with tensor scales: one value for each scale. If both are null, amax is found.
  const float* amax = nullptr;
  const float* tensor_scale = nullptr;
  // On CUDA, where tensor scales or the scale of a whole tensor are found: memory of a float32 for
  // each of them.
  float* found_amax = nullptr;
};

// Quantizes x to out, of x's shape, blocks along the columns. Throws InvalidArgument, and
// Unsupported for devices that it does not work on.
MXKERN_API void quantize(const AnyBuffer& x, const AnyBlockScaled& out,
                         const AnyOptions& options = {}, Stream stream = {});

// out = code * scale (* tensor scale), rounded once to out's type.
MXKERN_API void dequantize(const AnyBlockScaled& q, const AnyBuffer& out, Stream stream = {});

// out = dequantize(quantize(x)), of x's type, without codes and scales in memory. out may be x.
MXKERN_API void fake_quantize(const AnyBuffer& x, const AnyScheme& scheme, const AnyBuffer& out,
                              const AnyOptions& options = {}, Stream stream = {});

// Rounds each element of x to the nearest value, or as options say, of a format. NaN stays NaN.
// out is of x's type, and may be x.
MXKERN_API void round_to(const AnyBuffer& x, const AnyFormat& format, const AnyBuffer& out,
                         const AnyOptions& options = {}, Stream stream = {});

// gemm with a right operand by a scheme of the user's own whose is_exact_in_bfloat16() is true: its
// rows are decoded to bfloat16 in the workspace, and multiplied as gemm multiplies those of other
// schemes, with its error. precision is automatic or exact. workspace: at least
// custom_gemm_workspace_bytes of the same arguments, aligned as gemm's. Throws InvalidArgument and
// Unsupported.
MXKERN_API void gemm(const GemmOperand& a, const AnyBlockScaled& b, const Buffer& out,
                     const GemmOptions& options, Workspace workspace, Stream stream = {});

MXKERN_API std::size_t custom_gemm_workspace_bytes(const GemmOperand& a, const AnyBlockScaled& b,
                                                   const Buffer& out,
                                                   const GemmOptions& options = {});

// The options of a product of decoded operands: out = alpha * sum + bias + beta * out, in
// float32, rounded once to out's type. bias: null, or one for each column.
struct AnyProductOptions {
  float alpha = 1.0f;
  float beta = 0.0f;
  const Buffer* bias = nullptr;
  // Float32 scales of a and b, whose elements are codes' values then: sums over each scale_block
  // elements of k are multiplied with both. [ceil(M / a_scale_rows), ceil(K / scale_block)] for
  // each matrix, and as many for b.
  std::int64_t scale_block = 0;
  const float* a_scales = nullptr;
  const float* b_scales = nullptr;
  std::int64_t a_scale_rows = 1, b_scale_rows = 1;
};

// Products of float32 matrices [M, K] and [N, K], one b for each a or one for all, summed in
// float32.
MXKERN_API void multiply_float32(const Buffer& a, const Buffer& b, const Buffer& out,
                                 const AnyProductOptions& options = {}, Stream stream = {});

// As multiply_float32, but rounds every partial sum to a format, from k = 0 up: the exact product
// is added to it in float64, and the sum is rounded. CPU only, an emulation.
MXKERN_API void accumulate_products(const Buffer& a, const Buffer& b, const Buffer& out,
                                    const AnyFormat& format, const AnyRoundingOptions& rounding,
                                    const AnyProductOptions& options = {});

}  // namespace mxkern
