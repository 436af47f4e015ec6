// cuda/runtime/check_cuda.h: errors of the CUDA runtime as exceptions.
#pragma once

#include <cuda_runtime.h>

#include "mxkern/core/error.h"

namespace mxkern::cuda {

// Throws what a CUDA call returned; the runtime's last error is cleared, so later calls are usable.
inline void check_cuda(cudaError_t error, const char* function, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw Unsupported(concatenate(function, ": CUDA failed to ", what, ": ", cudaGetErrorName(error),
                                ", ", cudaGetErrorString(error)));
}

}  // namespace mxkern::cuda
