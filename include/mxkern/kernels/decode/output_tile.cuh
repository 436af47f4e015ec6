// mxkern/kernels/decode/output_tile.cuh: which outputs a thread block of a few-token product has.
#pragma once

#include <cstdint>

#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/kernels/decode/parameters.h"
#include "mxkern/kernels/gemm/other_outputs.cuh"
#include "mxkern/kernels/gemm/row_groups.cuh"

namespace mxkern::kernels::few {

struct Place {
  std::int64_t batch;       // which matrix of weights, or group
  std::int64_t first_down;  // of the weights' tiles
  int first_token;          // of the batch, or of all
  int count;                // of tokens, where these belong to groups
  bool is_over;             // nothing is left to do
};

// Grid: ranks of the cluster and token tiles along x, groups of row tiles along y, batch along z.
// Where tokens belong to groups, along x alone: of each group all that have the same tokens one
// behind the other. Those groups may be what the kernel ahead writes.
template <class K>
__device__ __forceinline__ Place place_of(const DecodeParameters& p) {
  if constexpr (K::is_grouped) {
    const int place = static_cast<int>(blockIdx.x) / p.row_blocks;
    const int down = (static_cast<int>(blockIdx.x) - place * p.row_blocks) * p.row_tiles;
    wait_for_kernels_ahead();
    let_dependents_start();
    const GroupRows rows = rows_in_place<K::tokens>(p.groups, place);
    const bool is_over = rows.group == p.groups.groups || rows.count == 0;
    if (is_over) {
      const std::int64_t row = static_cast<std::int64_t>(down) * DecodeLayout::tile_rows;
      const std::int64_t most = p.row_tiles * DecodeLayout::tile_rows;
      const OtherOutputs outputs = {p.out,
                                    p.out_dtype,
                                    p.out_row_stride,
                                    rows.first,
                                    rows.count,
                                    row,
                                    lower_of<std::int64_t>(p.layout.rows - row, most)};
      rows.are_ordered ? outputs.scale(p.beta) : outputs.poison();
    }
    return {rows.group, down, rows.first, rows.count, is_over};
  } else {
    const int token_tile = static_cast<int>(blockIdx.x) >> p.log2_ranks;
    const std::int64_t down = static_cast<std::int64_t>(blockIdx.y) * p.row_tiles;
    return {blockIdx.z, down, token_tile * p.group_tokens, 0, false};
  }
}

// How many tokens it has.
template <class K>
__device__ __forceinline__ int tokens_at(const DecodeParameters& p, int first_token, int count) {
  if constexpr (K::is_grouped) return count;
  return p.tokens_from(first_token);
}

// Where the biases of a matrix of weights begin.
template <class K>
__device__ __forceinline__ std::int64_t first_bias(const DecodeParameters& p, std::int64_t batch) {
  if constexpr (K::is_grouped) return batch * p.bias_step;
  return 0;
}

// What a group's outputs are multiplied by.
template <class K>
__device__ __forceinline__ float group_factor(const DecodeParameters& p, std::int64_t batch) {
  if constexpr (K::is_grouped) {
    if (p.group_factors != nullptr) return p.group_factors[batch];
  }
  return 1.0f;
}

}  // namespace mxkern::kernels::few
