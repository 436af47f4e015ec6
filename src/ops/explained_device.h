// ops/explained_device.h: the device that an explanation of a product is about.
#pragma once

#include <string>

#include "mxkern/core/device.h"
#include "plan/gemm_cuda.h"

namespace mxkern {

// `device` as explain_gemm takes it; empty: where out is.
inline bool explains_cpu(const std::string& device, Device out) {
  return device == "cpu" || (device.empty() && out.type == DeviceType::cpu);
}

// The GPU otherwise. Throws InvalidArgument where there is none of that name, and Unsupported where
// this build has no code for it.
CudaGemmCapabilities explained_gpu(const char* function, const std::string& device, Device out);

}  // namespace mxkern
