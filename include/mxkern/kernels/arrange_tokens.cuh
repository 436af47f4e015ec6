// mxkern/kernels/arrange_tokens.cuh: tokens in the order in which gemm_few_sm90 copies them.
//
// Groups of tokens one after the other; of a group, boxes of 64 columns one after the other; a box
// is what wgmma reads as a right operand: a row of 128 bytes a token, with the 128-byte swizzle.
// Columns lie as the weights' lanes have them: of the 16 columns of a step lane q of four has the
// pairs q and q + 4, which are neighbours in the token.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/kernels/few_ptx.cuh"

namespace mxkern::kernels {

// So many, and so few registers, that a thread block has room beside one of a product.
inline constexpr int arrange_tokens_threads = 128;
inline constexpr int arrange_tokens_blocks = 16;                           // a multiprocessor
inline constexpr int arrange_tokens_together = 4;                          // rows
inline constexpr int arrange_tokens_columns = arrange_tokens_threads * 8;  // of a thread block

struct ArrangeTokensParameters {
  const std::uint16_t* from;
  std::int64_t batch, rows, columns;
  std::int64_t row_stride, batch_stride;  // in elements
  bool is_aligned;                        // every eighth column starts on 16 bytes
  int group;                              // tokens of a group
  std::int64_t boxes;                     // of a group; columns beyond K are zeros
  std::uint8_t* to;
};

// A warp has 256 columns of a few rows at a time. Grid: columns along x, rows along y, batch along
// z. What fills up the last group is not written: it stays in its own rows of the product.
__global__ void __launch_bounds__(arrange_tokens_threads, arrange_tokens_blocks)
    arrange_tokens_kernel(const __grid_constant__ ArrangeTokensParameters p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr int together = arrange_tokens_together;
  __shared__ uint4 staged[arrange_tokens_threads / 32][together][32];
  few::let_next_kernel_start();
  const std::int64_t chunk =
      blockIdx.x * static_cast<std::int64_t>(arrange_tokens_threads) + threadIdx.x;
  const std::int64_t column = chunk * 8, box = chunk / 8;
  const std::int64_t groups = ceil_div(p.rows, p.group);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  uint4(&rows)[together][32] = staged[threadIdx.x / 32];
  // A lane writes the pairs of one half of a step, of the four quads of lanes.
  const int half = lane % 2, step = lane / 2 % 2;
  const int first = lane / 4 * 16 + step * 2 + half;
  const bool is_easy = p.is_aligned && column + 8 <= p.columns;
  few::wait_for_previous_kernel();
  const int row_step = static_cast<int>(gridDim.y);
  for (std::int64_t batch = blockIdx.z; batch < p.batch; batch += gridDim.z) {
    const std::uint16_t* from = p.from + batch * p.batch_stride + column;
#pragma unroll 1
    for (int row = static_cast<int>(blockIdx.y); row < p.rows; row += together * row_step) {
      uint4 words[together];
#pragma unroll
      for (int i = 0; i < together; ++i) {
        const int at = row + i * row_step;
        words[i] = {};
        if (at >= p.rows) continue;
        const std::uint16_t* eight = from + at * p.row_stride;
        if (is_easy) {
          words[i] = *reinterpret_cast<const uint4*>(eight);
        } else {
          std::uint32_t pair[4] = {};
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            if (column + j < p.columns) {
              pair[j / 2] |= static_cast<std::uint32_t>(eight[j]) << (16 * (j % 2));
            }
          }
          words[i] = {pair[0], pair[1], pair[2], pair[3]};
        }
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < together; ++i) rows[i][lane] = words[i];
      __syncwarp();
      if (box >= p.boxes) continue;
#pragma unroll
      for (int i = 0; i < together; ++i) {
        const int at = row + i * row_step;
        if (at >= p.rows) continue;
        const auto* pair = reinterpret_cast<const std::uint32_t*>(rows[i]) + first;
        const int in_group = at % p.group;
        std::uint8_t* to = p.to +
                           ((batch * groups + at / p.group) * p.boxes + box) * (p.group * 128) +
                           in_group * 128 + ((lane % 8 ^ in_group % 8) * 16);
        *reinterpret_cast<uint4*>(to) = uint4{pair[0], pair[4], pair[8], pair[12]};
      }
    }
  }
#endif
}

}  // namespace mxkern::kernels
