// cuda/runtime/driver.h: functions of the CUDA driver, found through the runtime: nothing links
// against it.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "cuda/runtime/check_cuda.h"

namespace mxkern::cuda {

// The driver's function of that name, as CUDA 12 has it. Function: the type of a pointer to it.
template <class Function>
Function driver_function(const char* function, const char* name) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  check_cuda(cudaGetDriverEntryPointByVersion(name, &address, 12000, cudaEnableDefault, &found),
             function, "look up a function of the driver");
  check<Unsupported>(found == cudaDriverEntryPointSuccess && address != nullptr, function,
                     ": the driver lacks ", name, "; update it to one for CUDA 12");
  return reinterpret_cast<Function>(address);
}

}  // namespace mxkern::cuda
