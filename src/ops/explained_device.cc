// ops/explained_device.cc: the device that an explanation of a product is about.
#include "ops/explained_device.h"

#include "check/arguments.h"
#if defined(MXKERN_HAS_CUDA)
#include "cuda/gemm/gemm.h"
#endif

namespace mxkern {

CudaGemmCapabilities explained_gpu(const char* function, const std::string& device, Device out) {
  if (!device.empty()) return capabilities_of(device, function);
  check_device(function, out);
#if defined(MXKERN_HAS_CUDA)
  return cuda::gemm_capabilities(function, out);
#else
  return {};
#endif
}

}  // namespace mxkern
