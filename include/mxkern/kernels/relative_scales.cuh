// mxkern/kernels/relative_scales.cuh: a row's block scales relative to the largest, as multipliers.
#pragma once

#include <cstdint>

#include "mxkern/core/dtype.h"
#include "mxkern/kernels/dependents.cuh"
#include "mxkern/kernels/row_team.cuh"
#include "mxkern/numerics/scale_format.h"

namespace mxkern::kernels {

struct RelativeScales {
  std::int64_t batch, rows;
  const std::uint8_t* scales;
  ScaleIndex scale_index;
  bool scales_in_words;  // see largest_scale
  std::uint16_t* multipliers;
  std::int64_t row_elements;  // a multiple of 8; what lies behind the last block becomes 0
  std::int32_t* exponents;

  // A row a warp: thread blocks' work.
  static constexpr int rows_at_a_time = team_threads / 32;
  __host__ __device__ std::int64_t groups() const {
    return ceil_div(batch * rows, std::int64_t{rows_at_a_time});
  }
};

struct RelativeScalesParameters {
  RelativeScales scales;
  Follows follows;
  ZeroedCounters counters;
};

// gemm_sm90_decode.cuh takes codes as bfloat16 2^120 times smaller, multiplies them by these, and
// rows by 2^exponent: the largest scale becomes 2^127, the largest there is.
inline constexpr int decoded_shift = 120, largest_multiplier = 127;

// The rows of a group.
__device__ __forceinline__ void make_relative(const RelativeScales& p, std::int64_t group) {
  const std::int64_t index = group * RelativeScales::rows_at_a_time + threadIdx.x / 32;
  if (index >= p.batch * p.rows) return;
  const ScaleRow scales(p.scales, p.scale_index, TeamRow(index, p.rows));
  const std::int64_t blocks = p.scale_index.blocks;
  const auto largest = static_cast<int>(largest_scale(scales, blocks, p.scales_in_words));
  std::uint16_t* out = p.multipliers + index * p.row_elements;
  for (std::int64_t block = threadIdx.x % 32; block < p.row_elements; block += 32) {
    std::uint32_t multiplier = 0;
    if (block < blocks) {
      const int byte = scales[block];
      const int field = largest_multiplier + 127 + byte - largest;
      // The one that is too small for a normal number is 2^-127.
      multiplier = byte == E8M0::nan_byte ? 0x7FC0u : field > 0 ? field << 7 : 0x0040u;
    }
    out[block] = static_cast<std::uint16_t>(multiplier);
  }
  if (threadIdx.x % 32 == 0) {
    p.exponents[index] = largest - E8M0::bias + decoded_shift - largest_multiplier;
  }
}

static __global__ void __launch_bounds__(team_threads)
    relative_scales_kernel(const __grid_constant__ RelativeScalesParameters p) {
  wait_at_start(p.follows);
  p.counters.clear();
  make_relative(p.scales, blockIdx.x);
  wait_at_end(p.follows);
}

}  // namespace mxkern::kernels
