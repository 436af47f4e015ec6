// cuda/runtime/devices.cu: what there is to run on.
#include <cuda_runtime.h>

#include "cuda/backend.h"
#include "mxkern/core/error.h"

namespace mxkern::cuda {

std::string describe_runtime() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    cudaGetLastError();
    return concatenate("no device: ", cudaGetErrorString(error));
  }
  int runtime = 0, driver = 0;
  cudaRuntimeGetVersion(&runtime);
  cudaDriverGetVersion(&driver);
  return concatenate("runtime ", runtime / 1000, ".", runtime % 1000 / 10, ", driver for ",
                     driver / 1000, ".", driver % 1000 / 10);
}

std::vector<std::string> describe_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();
    return {};
  }
  std::vector<std::string> devices;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) {
      cudaGetLastError();
      continue;
    }
    devices.push_back(concatenate(i, ": ", properties.name, ", compute capability ",
                                  properties.major, ".", properties.minor, ", ",
                                  properties.multiProcessorCount, " multiprocessors, ",
                                  properties.totalGlobalMem >> 30, " GiB"));
  }
  return devices;
}

}  // namespace mxkern::cuda
