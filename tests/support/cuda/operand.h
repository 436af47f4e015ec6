// tests/support/cuda/operand.h: operands of a matrix product, copied to a CUDA device.
#pragma once

#include <vector>

#include "mxkern/gemm.h"
#include "tests/support/cuda/memory.h"
#include "tests/support/gemm_operand.h"

namespace mxkern::test {

// Bytes of the host on the device, at an address that is a multiple of 256, or `shift` more.
class DeviceCopy {
 public:
  explicit DeviceCopy(const std::vector<std::uint8_t>& host, int shift = 0)
      : bytes_(host.size(), shift) {
    check_cuda(cudaMemcpy(bytes_.data(), host.data(), host.size(), cudaMemcpyHostToDevice));
  }
  std::uint8_t* data() { return bytes_.data(); }
  void copy_to(std::vector<std::uint8_t>& host) {
    check_cuda(cudaMemcpy(host.data(), bytes_.data(), host.size(), cudaMemcpyDeviceToHost));
  }

 private:
  DeviceBytes bytes_;
};

// A quantized operand on the device; with `misaligned`, its codes start on an odd address.
class DeviceQuantizedOperand {
 public:
  explicit DeviceQuantizedOperand(QuantizedOperand& host, bool misaligned = false)
      : view_(host.quantized()),
        codes_(host.codes, misaligned ? 1 : 0),
        scales_(host.scales, misaligned ? 3 : 0),
        tensor_scale_(host.tensor_scale) {
    view_.codes = codes_.data();
    view_.scales = scales_.data();
    if (view_.tensor_scale != nullptr) view_.tensor_scale = tensor_scale_.address();
    view_.device = first_cuda_device;
  }
  const BlockScaled& view() const { return view_; }

 private:
  BlockScaled view_;
  DeviceCopy codes_, scales_;
  DeviceFloat tensor_scale_;
};

// A plain tensor on the device; with `misaligned`, one element beyond any alignment.
class DevicePlainTensor {
 public:
  explicit DevicePlainTensor(PlainTensor& host, bool misaligned = false)
      : view_(host.buffer()),
        bytes_(host.bytes, misaligned ? static_cast<int>(size_of(host.view.dtype)) : 0) {
    view_.data = bytes_.data();
    view_.device = first_cuda_device;
  }
  const Buffer& view() const { return view_; }
  void copy_to(PlainTensor& host) { bytes_.copy_to(host.bytes); }

 private:
  Buffer view_;
  DeviceCopy bytes_;
};

}  // namespace mxkern::test
