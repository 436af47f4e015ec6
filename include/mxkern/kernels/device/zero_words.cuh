// mxkern/kernels/device/zero_words.cuh: counters of a product that has no other kernel ahead of it.
#pragma once

#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/kernels/device/row_team.cuh"

namespace mxkern::kernels {

static __global__ void zero_words_kernel(const __grid_constant__ ZeroedCounters words) {
  wait_at_start(Follows::behind);
  words.clear();
}

}  // namespace mxkern::kernels
