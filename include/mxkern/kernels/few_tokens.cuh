// mxkern/kernels/few_tokens.cuh: the warps of a few-token product that copy the tokens.
#pragma once

#include <cstdint>

#include "mxkern/core/math.h"
#include "mxkern/kernels/few_parameters.h"
#include "mxkern/kernels/few_ptx.cuh"

namespace mxkern::kernels::few {

// A few warps copy the tokens of the thread block's part of K, stage by stage; zeros beyond K. Not
// by bulk copies: they would wait for those of the weights, many of which are always under way.
template <class K>
__device__ __forceinline__ void produce_tokens(const FewParameters& p, const std::uint8_t* x,
                                               int tokens, int first, int tiles, std::uint32_t ring,
                                               std::uint32_t full, std::uint32_t free, int producer,
                                               int lane) {
  constexpr int log2_chunks = 4;  // of 16 bytes, in a tile
  static_assert(DecodeLayout::tile_columns * 2 == 16 << log2_chunks);
  const int parts = 1 << p.log2_parts, turns = (tiles + parts - 1) >> p.log2_parts;
  const int x_stride = K::shape().x_stride(parts), stage_bytes = K::shape().x_stage_bytes(parts);
  // A warp copies two rows at a time where a row is one tile; warps take turns.
  const int chunks = parts << log2_chunks;
  const int in_turn = chunks < 32 ? 2 : 1, rows = in_turn * K::producers;
  const int lane_token = producer * in_turn + (chunks < 32 ? lane >> log2_chunks : 0);
  const int lane_chunk = chunks < 32 ? lane & (chunks - 1) : lane;
  const std::int64_t end = p.layout.columns * 2;
  int stage = 0, round = 0;
#pragma unroll 1
  for (int i = 0; i < turns; ++i) {
    if (round > 0) wait(free + stage * 8, (round - 1) & 1);
#pragma unroll 1
    for (int chunk = lane_chunk; chunk < chunks; chunk += 32) {
      const std::int64_t byte = (static_cast<std::int64_t>(first + i * parts) << 8) + chunk * 16;
      const auto left = static_cast<int>(lower_of<std::int64_t>(end - byte, 16));
      const int bytes = higher_of(left, 0);
      const std::uint8_t* from = x + lane_token * p.x_row_bytes + (left > 0 ? byte : 0);
      const std::int64_t step = rows * p.x_row_bytes;
      std::uint32_t to = ring + stage * stage_bytes + lane_token * x_stride + chunk * 16;
      int token = lane_token;
#pragma unroll 1
      for (; token + 3 * rows < tokens; token += 4 * rows) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          copy_chunk(to, from, bytes);
          from += step, to += rows * x_stride;
        }
      }
#pragma unroll 1
      for (; token < tokens; token += rows) {
        copy_chunk(to, from, bytes);
        from += step, to += rows * x_stride;
      }
    }
    arrive_after_chunks(full + stage * 8);
    if (++stage == p.x_stages) stage = 0, ++round;
  }
}

}  // namespace mxkern::kernels::few
