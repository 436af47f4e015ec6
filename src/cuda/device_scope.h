// cuda/device_scope.h: what work on a device begins with: errors as exceptions, its attributes, the
// right device and stream, pointers that are its own.
#pragma once

#include <cuda_runtime.h>

#include "mxkern/core/device.h"
#include "mxkern/core/error.h"

namespace mxkern::cuda {

// Throws what a CUDA call returned; the runtime's last error is cleared, so later calls are usable.
inline void check_cuda(cudaError_t error, const char* function, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw Unsupported(concatenate(function, ": CUDA failed to ", what, ": ", cudaGetErrorName(error),
                                ", ", cudaGetErrorString(error)));
}

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

// Makes a device current for the scope, and the one before afterwards.
class DeviceScope {
 public:
  // For work on a stream that a user gave.
  DeviceScope(Device device, Stream stream, const char* function) : DeviceScope(device, function) {
    check_stream(function, stream, device);
  }

  DeviceScope(Device device, const char* function) {
    check_cuda(cudaGetDevice(&before_), function, "find the current device");
    if (device.index != before_) {
      check_cuda(cudaSetDevice(device.index), function, "select the array's device");
      changed_ = true;
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
