// tests/support/cuda/memory.h: tensors on a CUDA device, copied from those of the host and back.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "tests/support/tensor.h"

namespace mxkern::test {

inline void check_cuda(cudaError_t error) {
  if (error == cudaSuccess) return;
  throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(error));
}

inline int cuda_device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

// A test that needs a device, and is skipped where there is none.
class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "there is no CUDA device";
  }
};

inline constexpr Device first_cuda_device{DeviceType::cuda, 0};
inline constexpr Device second_cuda_device{DeviceType::cuda, 1};

// Makes a device current for the scope: memory and streams that are made in it are that device's.
class CurrentDevice {
 public:
  explicit CurrentDevice(Device device) {
    check_cuda(cudaGetDevice(&before_));
    check_cuda(cudaSetDevice(device.index));
  }
  ~CurrentDevice() { cudaSetDevice(before_); }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = 0;
};

// The bytes are there when it returns, for streams that wait for no other too: cudaMemcpy may still
// be on its way with what it has taken from pageable memory.
inline void copy_to_device(void* to, const void* from, std::size_t size) {
  check_cuda(cudaMemcpy(to, from, size, cudaMemcpyHostToDevice));
  check_cuda(cudaStreamSynchronize(cudaStreamLegacy));
}

// Memory of the current device. It starts `shift` bytes after a multiple of 256.
class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t size, int shift = 0) : shift_(shift) {
    check_cuda(cudaMalloc(&memory_, size + shift_ + 1));
  }
  ~DeviceBytes() { cudaFree(memory_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  std::uint8_t* data() { return static_cast<std::uint8_t*>(memory_) + shift_; }

 private:
  void* memory_ = nullptr;
  int shift_;
};

// Guarded bytes with a twin on the device, margins included.
class DeviceTwin {
 public:
  explicit DeviceTwin(const GuardedBytes& host, int shift = 0)
      : bytes_(host.whole().size(), shift) {
    const auto whole = host.whole();
    copy_to_device(bytes_.data(), whole.data(), whole.size());
  }

  std::uint8_t* data() { return bytes_.data() + GuardedBytes::data_offset(); }

  void copy_to(GuardedBytes& host) {
    const auto whole = host.whole();
    check_cuda(cudaMemcpy(whole.data(), bytes_.data(), whole.size(), cudaMemcpyDeviceToHost));
  }

 private:
  DeviceBytes bytes_;
};

// A plain tensor in memory of the current device, said to be on `device`; with `misaligned`, one
// element beyond any alignment.
class DeviceTensor {
 public:
  explicit DeviceTensor(Tensor& host, bool misaligned = false, Device device = first_cuda_device)
      : buffer_(host.buffer()),
        twin_(host.bytes(), misaligned ? static_cast<int>(size_of(host.dtype())) : 0) {
    buffer_.data = twin_.data();
    buffer_.device = device;
  }

  const Buffer& buffer() const { return buffer_; }
  void copy_to(Tensor& host) { twin_.copy_to(host.bytes()); }

 private:
  Buffer buffer_;
  DeviceTwin twin_;
};

// One float32 on the device.
class DeviceFloat {
 public:
  explicit DeviceFloat(float value = -1.0f) : bytes_(sizeof(float)) {
    copy_to_device(bytes_.data(), &value, sizeof value);
  }

  float* address() { return reinterpret_cast<float*>(bytes_.data()); }

  float value() {
    float value = 0.0f;
    check_cuda(cudaMemcpy(&value, bytes_.data(), sizeof value, cudaMemcpyDeviceToHost));
    return value;
  }

 private:
  DeviceBytes bytes_;
};

// A quantized tensor, likewise.
class DeviceQuantized {
 public:
  explicit DeviceQuantized(Quantized& host, bool misaligned = false,
                           Device device = first_cuda_device)
      : view_(host.view),
        codes_(host.codes, misaligned ? 1 : 0),
        scales_(host.scales, misaligned ? 3 : 0),
        tensor_scale_(host.tensor_scale) {
    view_.codes = codes_.data();
    view_.scales = scales_.data();
    if (facts_of(view_.scheme).has_tensor_scale) view_.tensor_scale = tensor_scale_.address();
    view_.device = device;
  }

  const BlockScaled& view() const { return view_; }

  // Where an amax can be left that is found on the way.
  float* found_amax() { return found_amax_.address(); }

  Quantized on_host() {
    Quantized host(view_.scheme, view_.shape, view_.scale_layout);
    codes_.copy_to(host.codes);
    scales_.copy_to(host.scales);
    host.tensor_scale = tensor_scale_.value();
    return host;
  }

 private:
  BlockScaled view_;
  DeviceTwin codes_;
  DeviceTwin scales_;
  DeviceFloat tensor_scale_;
  DeviceFloat found_amax_;
};

}  // namespace mxkern::test
