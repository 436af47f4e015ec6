// cuda/runtime/row_grids.h: the grids of kernels that walk along rows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cuda/runtime/device_scope.h"
#include "cuda/runtime/launch.h"
#include "mxkern/core/math.h"
#include "mxkern/kernels/device/row_grid.cuh"

namespace mxkern::cuda {

// The grid of a kernel along rows of `octets` octets: 16 to 256 of them across a thread block, as
// many as leave the fewest threads without one, and up to 2^log2_depth groups of rows a thread
// block as long as the device stays full.
inline kernels::RowGrid row_grid(std::int64_t batch, std::int64_t rows, std::int64_t octets,
                                 int log2_depth = 0) {
  constexpr std::int64_t enough_blocks = 1024;
  int log2 = 4;
  while (log2 < 8 && (std::int64_t{1} << log2) < octets) ++log2;
  for (int fewer = log2 - 1; fewer >= 5; --fewer) {
    if (round_up(octets, std::int64_t{1} << fewer) < round_up(octets, std::int64_t{1} << log2)) {
      log2 = fewer;
    }
  }
  kernels::RowGrid grid{batch, rows, octets, log2};
  while (grid.log2_depth < log2_depth && grid.log2_depth < grid.log2_groups() &&
         grid.chunks() * grid.series() * batch >= 2 * enough_blocks) {
    ++grid.log2_depth;
  }
  return grid;
}

inline dim3 grid_of(const kernels::RowGrid& grid) {
  return grid_of(grid.chunks(), grid.series(), grid.batch);
}

// The same, with only as many thread blocks as the device holds at a time, `blocks` a
// multiprocessor, where that divides the work well: each then walks through many series with its
// loads ahead of the work, and none of them is left over for a last round.
inline dim3 resident_grid(const char* function, const kernels::RowGrid& grid, int blocks) {
  const std::int64_t series = grid.series(), others = grid.chunks() * grid.batch;
  constexpr std::int64_t few = 2048;
  if (series * others <= few) return grid_of(grid);
  const std::int64_t resident = std::int64_t{processor_count(function)} * blocks;
  std::int64_t best = series;
  double best_share = 0.9;
  for (int rounds = 1; rounds <= 8; ++rounds) {
    const std::int64_t down = std::min(series, resident * rounds / others);
    if (down == 0) continue;
    const double full = static_cast<double>(down * others) / static_cast<double>(resident * rounds);
    const double even =
        static_cast<double>(series) / static_cast<double>(ceil_div(series, down) * down);
    if (full * even > best_share + 0.01) {
      best = down;
      best_share = full * even;
    }
  }
  return grid_of(grid.chunks(), best, grid.batch);
}

}  // namespace mxkern::cuda
