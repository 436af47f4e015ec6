// cuda/runtime/primary_context.h: the contexts that the CUDA runtime uses, one of each device.
#pragma once

#include "cuda/runtime/driver.h"

namespace mxkern::cuda {

// Whether the device's exists. Some hundred megabytes of the device are its own.
inline bool has_context(int device, const char* function) {
  static const auto state = driver_function<decltype(&cuDevicePrimaryCtxGetState)>(
      function, "cuDevicePrimaryCtxGetState");
  unsigned flags = 0;
  int is_active = 0;
  const CUresult result = state(device, &flags, &is_active);
  return result != CUDA_SUCCESS || is_active != 0;
}

// Makes a device's the current one, and afterwards what was before: none, too, which cudaSetDevice
// cannot.
class ContextScope {
 public:
  ContextScope() = default;
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  ~ContextScope() {
    if (driver_ == nullptr) return;
    CUcontext context = nullptr;
    driver_->pop(&context);
    driver_->release(device_);
  }

  void enter(int device, const char* function) {
    static const Driver driver(function);
    CUcontext context = nullptr;
    check_driver(driver.retain(&context, device), function);
    const CUresult pushed = driver.push(context);
    if (pushed != CUDA_SUCCESS) driver.release(device);
    check_driver(pushed, function);
    driver_ = &driver;
    device_ = device;
  }

 private:
  struct Driver {
    explicit Driver(const char* function)
        : retain(driver_function<decltype(retain)>(function, "cuDevicePrimaryCtxRetain")),
          release(driver_function<decltype(release)>(function, "cuDevicePrimaryCtxRelease")),
          push(driver_function<decltype(push)>(function, "cuCtxPushCurrent")),
          pop(driver_function<decltype(pop)>(function, "cuCtxPopCurrent")) {}

    decltype(&cuDevicePrimaryCtxRetain) retain;
    decltype(&cuDevicePrimaryCtxRelease) release;
    decltype(&cuCtxPushCurrent) push;
    decltype(&cuCtxPopCurrent) pop;
  };

  static void check_driver(CUresult result, const char* function) {
    check<Unsupported>(result == CUDA_SUCCESS, function,
                       ": CUDA failed to select the array's device: error ",
                       static_cast<int>(result), " of the driver");
  }

  const Driver* driver_ = nullptr;
  int device_ = 0;
};

}  // namespace mxkern::cuda
