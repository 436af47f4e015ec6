// cuda/runtime/device_scope.h: what work on a device begins with: its attributes, the right device
// and stream, pointers that are its own.
#pragma once

#include <cuda_runtime.h>

#include "cuda/runtime/check_cuda.h"
#include "cuda/runtime/primary_context.h"
#include "mxkern/core/device.h"

namespace mxkern::cuda {

// What the runtime knows about a device.
inline int attribute_of(const char* function, cudaDeviceAttr attribute, int device) {
  int value = 0;
  check_cuda(cudaDeviceGetAttribute(&value, attribute, device), function,
             "read what the device can do");
  return value;
}

// The same of the current device.
inline int attribute_of(const char* function, cudaDeviceAttr attribute) {
  int device = 0;
  check_cuda(cudaGetDevice(&device), function, "find the current device");
  return attribute_of(function, attribute, device);
}

// The multiprocessors of the current device.
inline int processor_count(const char* function) {
  return attribute_of(function, cudaDevAttrMultiProcessorCount);
}

inline cudaStream_t handle_of(Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

// Throws unless the stream is one of the device. Some drivers take a launch on a stream of another
// device and run it there, out of reach of the arrays. Asks nothing where there is one device, nor
// of a stream that is being captured, as the question would end the capture.
inline void check_stream(const char* function, Stream stream, Device device) {
  static const bool several = [] {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count > 1;
  }();
  const cudaStream_t handle = handle_of(stream);
  if (!several || handle == nullptr || handle == cudaStreamLegacy ||
      handle == cudaStreamPerThread) {
    return;
  }
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(handle, &capture), function, "look up a stream");
  if (capture != cudaStreamCaptureStatusNone) return;
  int index = 0;
  check_cuda(cudaStreamGetDevice(handle, &index), function, "look up a stream's device");
  check(index == device.index, function, ": stream is one of cuda:", index,
        " but the arrays lie on cuda:", device.index, "; expected a stream of the arrays' device");
}

// Makes a device current for the scope, and the one before afterwards. A device that nobody uses
// gets no context by that, as it would of cudaSetDevice.
class DeviceScope {
 public:
  // For work on a stream that a user gave.
  DeviceScope(Device device, Stream stream, const char* function) : DeviceScope(device, function) {
    check_stream(function, stream, device);
  }

  DeviceScope(Device device, const char* function) {
    check_cuda(cudaGetDevice(&before_), function, "find the current device");
    if (device.index == before_) return;
    if (has_context(before_, function)) {
      check_cuda(cudaSetDevice(device.index), function, "select the array's device");
      changed_ = true;
    } else {
      context_.enter(device.index, function);
    }
  }
  ~DeviceScope() {
    if (changed_) cudaSetDevice(before_);
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
  ContextScope context_;
};

// Throws unless the address is the device's: a host pointer would end the whole process' use of the
// device, and memory of another device would be slow or fail later.
inline void check_device_pointer(const char* function, const char* name, const void* pointer,
                                 Device device) {
  if (pointer == nullptr) return;
  cudaPointerAttributes attributes = {};
  check_cuda(cudaPointerGetAttributes(&attributes, pointer), function, "look up a pointer");
  check(attributes.type != cudaMemoryTypeUnregistered, function, ": ", name,
        " is said to lie on a CUDA device but points to host memory; copy it to the device or pass "
        "it as a CPU array");
  check(attributes.type != cudaMemoryTypeDevice || attributes.device == device.index, function,
        ": ", name, " is said to lie on cuda:", device.index,
        " but points to memory of cuda:", attributes.device,
        "; expected all arguments on one device");
}

}  // namespace mxkern::cuda
