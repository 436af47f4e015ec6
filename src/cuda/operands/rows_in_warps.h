// cuda/operands/rows_in_warps.h: how rows that are quantized and folded are divided among warps.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/runtime/launch.h"
#include "mxkern/kernels/operands/quantize_folded_rows.cuh"

namespace mxkern::cuda {

// Warps that hold whole rows.
struct RowsInWarps {
  int octets = 0;        // of a lane; 0: a row takes too many of them
  int warps = 0;         // of a row
  int rows = 0;          // of a thread block
  bool at_once = false;  // all rows of the matrix, in a thread block a multiprocessor

  int threads() const { return 32 * rows * warps; }
  dim3 grid(std::int64_t all_rows) const { return grid_of(ceil_div(all_rows, rows)); }
};

inline RowsInWarps rows_in_warps(std::int64_t rows, std::int64_t columns, int processors) {
  const auto warps_of = [&](std::int64_t octets) {
    return ceil_div(columns, octets * kernels::columns_of_octets);
  };
  constexpr int most_octets = kernels::most_rows_octets;
  const std::int64_t rows_of_one = ceil_div(rows, processors);
  for (const int octets : {most_octets / 2, most_octets}) {
    if (rows_of_one * warps_of(octets) <= kernels::all_rows_warps) {
      return {octets, static_cast<int>(warps_of(octets)), static_cast<int>(rows_of_one), true};
    }
  }
  const std::int64_t warps = warps_of(most_octets);
  if (warps > kernels::some_rows_warps) return {};
  return {most_octets, static_cast<int>(warps), static_cast<int>(kernels::some_rows_warps / warps),
          false};
}

// Calls launch_of(octets, warps), constants of the kernel for these rows.
template <class Launch>
void launch_rows_in_warps(const RowsInWarps& how, Launch&& launch_of) {
  constexpr int octets = kernels::most_rows_octets;
  constexpr std::integral_constant<int, kernels::all_rows_warps> all{};
  constexpr std::integral_constant<int, kernels::some_rows_warps> some{};
  if (!how.at_once) {
    launch_of(std::integral_constant<int, octets>{}, some);
  } else if (how.octets == octets) {
    launch_of(std::integral_constant<int, octets>{}, all);
  } else {
    launch_of(std::integral_constant<int, octets / 2>{}, all);
  }
}

}  // namespace mxkern::cuda
