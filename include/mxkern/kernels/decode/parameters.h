// mxkern/kernels/decode/parameters.h: what a few-token kernel is told, and what it is compiled for.
#pragma once

#include <cstdint>

#include "mxkern/core/dtype.h"
#include "mxkern/kernels/decode/shared_memory.h"
#include "mxkern/kernels/gemm/row_groups.h"
#include "mxkern/tensor/decode_layout.h"

namespace mxkern::kernels {

// Outputs that are gates and what they let through, of which the SwiGLU is stored in their place:
// see mxkern/swiglu.h.
struct GatedOutputs {
  bool are_there;
  int tiles_behind;  // from a tile of gates to that of what they let through; 0: they alternate
  float alpha, limit, offset;
};

struct DecodeParameters {
  DecodeLayout layout;
  const std::uint8_t* weights;
  std::int64_t weight_batch_bytes;  // 0: one matrix for all of x
  // Rows start on 16 bytes.
  const std::uint8_t* x;
  std::int64_t x_row_bytes, x_batch_bytes;
  std::int64_t kinds_offset;  // what the layout says, which takes long to work out
  int tokens;
  int tiles_down;         // of the weights' rows
  int tiles;              // of the weights' columns
  int log2_ranks;         // of the parts of K that the thread blocks of a cluster have
  int log2_parts;         // of the parts of K that the warps of a thread block have
  int row_tiles;          // of a thread block; of groups of few rows, its teams
  int inverse_row_tiles;  // 65536 times, rounded up
  int stages;             // of a warp's ring
  int x_stages;
  int shared_bytes;
  // Of a thread block, but for the last ones, and rows of the tensor map's boxes. Groups are equal:
  // the copy engine is slow with boxes of which many rows are beyond the tokens.
  int group_tokens;
  // The end.
  float alpha, beta;
  const float* left_tensor_scale;
  const float* right_tensor_scale;
  const void* bias;
  DType bias_dtype;
  void* out;
  DType out_dtype;
  std::int64_t out_row_stride, out_batch_stride;
  // Of each token of each matrix, a power of two that its outputs lack; null: none.
  const std::int32_t* x_exponents;
  // Where rows of x belong to groups: x and out are one matrix, and each group has its weights. As
  // many thread blocks as row_blocks have the same tokens.
  GroupEnds groups;
  int row_blocks;
  std::int64_t bias_step;      // from a group's to the next one's, in elements
  const float* group_factors;  // of the groups' outputs; null: 1
  bool groups_are_complete;    // their ends and weights, before the kernel ahead is over
  GatedOutputs gated;

  MXKERN_HOST_DEVICE int tokens_from(int first_token) const {
    return lower_of(tokens - first_token, group_tokens);
  }
};

// IsHalf: tokens are float16, else bfloat16. Tokens: of a thread block, a multiple of 8. WarpTiles:
// of rows, that a warp takes at a time. Shares: the warps that take the same columns have one ring
// of tokens, else each its own. IsGrouped: the rows of x belong to groups.
template <class S, bool IsHalf, int Tokens, int WarpTiles, bool Shares, bool IsGrouped = false>
struct DecodeKernel {
  using Scheme = S;
  using Format = typename S::Format;
  static constexpr bool is_half = IsHalf, is_grouped = IsGrouped;
  static constexpr int tokens = Tokens;
  static constexpr bool shares = Shares;
  MXKERN_HOST_DEVICE static constexpr DecodeShape shape() {
    return {Format::bits, S::block, Tokens};
  }
  static constexpr int warps = shape().warps(), threads = 32 * warps;
  static constexpr int warp_tiles = WarpTiles;
  static constexpr DecodeLayout layout{0, 0, Format::bits, S::block};
  static constexpr int tile_bytes = layout.tile_bytes();

  // Decoded bfloat16 weights are 2^(bias - 127) times their values. For one tile of tokens it takes
  // least to multiply these by a power of two, and the sums of a block by its scale. Tokens from
  // 2^32 on become infinite thereby: what is not finite is computed again, element by element.
  static constexpr bool scales_x =
      !IsHalf && !Format::is_integer && Tokens == 8 && S::block == DecodeLayout::block_columns;
  static constexpr int x_exponent = 96;

  // For more, and where products of two blocks are summed at once, the weights get their scales,
  // times 2^-32, whereby products below 2^-94 lose bits. In half there is only room for scales of
  // NVFP4, times 2^-8.
  static constexpr bool scales_weights =
      (!IsHalf && Tokens > 8) || S::block != DecodeLayout::block_columns;
  static constexpr int weight_exponent = IsHalf ? -8 : Format::is_integer ? 0 : -32;
};

}  // namespace mxkern::kernels
