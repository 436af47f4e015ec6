// ops/explained_device.cc: the device that an explanation of a product is about.
#include "ops/explained_device.h"

#include "check/arguments.h"
#include "cuda/gemm/gemm.h"

namespace mxkern {

CudaGemmCapabilities explained_gpu(const char* function, const std::string& device, Device out) {
  if (!device.empty()) return capabilities_of(device, function);
  check_device(function, out);
  if constexpr (has_cuda) return cuda::gemm_capabilities(function, out);
  return {};
}

}  // namespace mxkern
