// mxkern/quantize.h: a tensor to codes and scales, along its rows, its columns, or both.
#pragma once

#include <cstdint>

#include "mxkern/core/buffer.h"
#include "mxkern/core/platform.h"
#include "mxkern/hadamard.h"
#include "mxkern/numerics/rounding.h"
#include "mxkern/numerics/scale_rule.h"
#include "mxkern/numerics/tensor_scale.h"
#include "mxkern/tensor/block_scaled.h"

namespace mxkern {

// row: a scale for 1 x block elements. square: one for block x block elements, written for each of
// the block's rows, so that the codes of the transpose are the transpose of the codes.
enum class BlockShape : std::uint8_t { row, square };

inline constexpr BlockShape all_block_shapes[] = {BlockShape::row, BlockShape::square};

struct QuantizeOptions {
  ScaleRule scale_rule = ScaleRule::rceil;  // of the MX schemes; NVFP4 has one rule
  Rounding rounding = Rounding::nearest;
  std::uint64_t seed = 0;    // of stochastic rounding: Philox key
  std::uint64_t offset = 0;  // of stochastic rounding: upper half of the Philox counter
  // Where not null, the offset lies there, on x's device: programs that are recorded once and run
  // many times, as CUDA graphs are, can count it up.
  const std::uint64_t* offset_at = nullptr;
  BlockShape block_shape = BlockShape::row;
  bool four_over_six = false;                // NVFP4: per block, the better of two scales
  BlockError block_error = BlockError::mse;  // by which it is the better one
  Hadamard hadamard = {};                    // transform groups along the block axis first
  // NVFP4: at most one of these, a float32 on x's device. `amax` is the tensor's largest magnitude
  // (or a calibrated one); `tensor_scale` the decode multiplier. Neither: amax is computed from x.
  // Like offset_at they may not lie where something is written.
  const float* amax = nullptr;
  const float* tensor_scale = nullptr;
  // Where an amax that is computed from x is left, a float32 on x's device: on the CPU where not
  // null; on CUDA it is needed, because a stream-ordered computation has nowhere else to keep it.
  // Without a transform one place does for both directions.
  float* found_amax = nullptr;
};

// Quantizes x [batch, rows, columns] to out of the same shape, blocks along the columns.
// Writes out.codes, out.scales (padding included) and, for NVFP4, *out.tensor_scale.
// A NaN or Inf poisons its block and nothing else, under a Hadamard transform the blocks of its
// group. The same bytes on every device.
// Outputs lie in memory of their own. Throws InvalidArgument. Source: OCP Microscaling Formats (MX)
// v1.0; Transformer Engine's NVFP4.
MXKERN_API void quantize(const Buffer& x, const BlockScaled& out,
                         const QuantizeOptions& options = {}, Stream stream = {});

// As quantize for the transpose of x: out has the shape [batch, columns, rows], blocks run along
// the rows of x. Random bits are those of the elements of x.
MXKERN_API void quantize_columns(const Buffer& x, const BlockScaled& out,
                                 const QuantizeOptions& options = {}, Stream stream = {});

// quantize to `rows` and quantize_columns to `columns`. x is read once for both or, where that is
// faster, for each; what finds an amax first reads it once more. Each direction has its own
// options; scheme and block shape are the same.
MXKERN_API void quantize_both(const Buffer& x, const BlockScaled& rows, const BlockScaled& columns,
                              const QuantizeOptions& row_options = {},
                              const QuantizeOptions& column_options = {}, Stream stream = {});

// Says which amax tensor_amax finds: that of x, or that of x after a Hadamard transform, which
// NVFP4's scales follow when quantize or quantize_columns transforms.
struct AmaxOptions {
  Hadamard hadamard = {};  // transform groups first, rounded to the dtype of x
  bool columns = false;    // groups run along the rows of x, as in quantize_columns
};

// *amax = the largest magnitude among the finite elements of x, or of its transform: the one that
// quantize, or quantize_columns, finds. 0 if there is none. amax is a float32 on x's device.
// Throws InvalidArgument where amax is null or lies in x, or groups do not fill the axis.
MXKERN_API void tensor_amax(const Buffer& x, float* amax, const AmaxOptions& options = {},
                            Stream stream = {});

}  // namespace mxkern
