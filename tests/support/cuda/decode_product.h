// tests/support/cuda/decode_product.h: a product of few tokens on the device, and its reference.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/decode/multiply.h"
#include "plan/decode/plan.h"
#include "tests/support/cuda/memory.h"
#include "tests/support/gemm_reference.h"

namespace mxkern::test {

// Bytes of the host on the device, and back.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(std::vector<T>& host) : host_(host), bytes_(host.size() * sizeof(T) + 256) {
    copy(bytes_.data(), host.data(), cudaMemcpyHostToDevice);
  }
  std::uint8_t* data() { return bytes_.data(); }
  void fetch() { copy(host_.data(), bytes_.data(), cudaMemcpyDeviceToHost); }

 private:
  void copy(void* to, const void* from, cudaMemcpyKind kind) {
    check_cuda(cudaMemcpy(to, from, host_.size() * sizeof(T), kind));
  }

  std::vector<T>& host_;
  DeviceBytes bytes_;
};

// A product and everything that it needs on the device.
struct Product {
  PlainTensor x;
  QuantizedOperand weights;
  PlainTensor out;
  float alpha = 1.0f, beta = 0.0f;
  PlainTensor* bias = nullptr;
  int shift = 0;                     // of x on the device, in elements
  bool prepared = true;              // ahead, not before each run
  int runs = 1;                      // of a captured graph, if more than one
  const DecodePlan* plan = nullptr;  // instead of the one that is chosen

  Product(DType dtype, Scheme scheme, Shape x_shape, std::int64_t rows, std::int64_t batch,
          DType out_dtype, std::int64_t gap = 0, ScaleLayout layout = ScaleLayout::row_major)
      : x(dtype, x_shape, gap, gap),
        weights(scheme, {batch, rows, x_shape.columns}, layout),
        out(out_dtype, {x_shape.batch, x_shape.rows, rows}, gap, gap) {}

  void fill(std::uint64_t seed) {
    x.fill(normal_values(seed));
    weights.quantize(normal_values(seed + 1));
  }

  Reference wanted() {
    GemmOptions options;
    options.alpha = alpha;
    options.beta = beta;
    return multiply(x, weights, out, options, bias);
  }

  void run() {
    const std::size_t offset = static_cast<std::size_t>(shift) * size_of(x.view.dtype);
    std::vector<std::uint8_t> shifted(x.bytes.size() + offset);
    std::copy(x.bytes.begin(), x.bytes.end(), shifted.begin() + static_cast<long>(offset));
    OnDevice x_device(shifted), codes(weights.codes), scales(weights.scales), out_device(out.bytes);
    DeviceFloat tensor_scale(weights.tensor_scale);
    BlockScaled w = weights.quantized();
    w.codes = codes.data();
    w.scales = scales.data();
    w.tensor_scale = tensor_scale.address();
    w.device = first_cuda_device;
    Buffer x_view = x.buffer();
    x_view.data = x_device.data() + offset;
    x_view.device = first_cuda_device;
    cuda::CoreFinish finish;
    finish.alpha = alpha;
    finish.beta = beta;
    if (facts_of(w.scheme).has_tensor_scale) finish.right_tensor_scale = tensor_scale.address();
    finish.out = out.buffer();
    finish.out.data = out_device.data();
    finish.out.device = first_cuda_device;
    std::vector<std::uint8_t> no_bytes;
    OnDevice bias_device(bias == nullptr ? no_bytes : bias->bytes);
    if (bias != nullptr) {
      finish.bias = bias_device.data();
      finish.bias_dtype = bias->view.dtype;
    }
    const auto reordered_size = static_cast<std::size_t>(cuda::reordered_bytes(w.scheme, w.shape));
    std::vector<std::uint8_t> ones(reordered_size, 0xFF);
    OnDevice memory(ones);
    const cuda::ReorderedWeights reordered{w.scheme, w.shape, memory.data(), first_cuda_device};
    const std::size_t bytes = cuda::copied_tokens_bytes(x_view);
    std::vector<std::uint8_t> work(bytes, 0xFF);
    OnDevice work_device(work);
    const Workspace workspace{work_device.data(), bytes};
    cudaStream_t stream;
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    const auto go = [&] {
      if (!prepared) cuda::reorder_weights("test", w, memory.data(), {stream});
      if (plan != nullptr) {
        cuda::multiply_decode_by(*plan, "test", x_view, reordered, finish, workspace, {stream});
      } else {
        cuda::multiply_decode("test", x_view, reordered, finish, workspace, {stream});
      }
    };
    // Copies of pageable memory may still be on their way when they return, and the stream does not
    // wait for the default one, where they are.
    check_cuda(cudaDeviceSynchronize());
    if (prepared) cuda::reorder_weights("test", w, memory.data(), {stream});
    if (runs == 1) {
      go();
    } else {
      cudaGraph_t graph;
      cudaGraphExec_t executable;
      check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
      for (int i = 0; i < runs; ++i) go();
      check_cuda(cudaStreamEndCapture(stream, &graph));
      check_cuda(cudaGraphInstantiate(&executable, graph, 0));
      check_cuda(cudaGraphLaunch(executable, stream));
      check_cuda(cudaGraphLaunch(executable, stream));
      check_cuda(cudaStreamSynchronize(stream));
      check_cuda(cudaGraphExecDestroy(executable));
      check_cuda(cudaGraphDestroy(graph));
    }
    check_cuda(cudaStreamSynchronize(stream));
    check_cuda(cudaStreamDestroy(stream));
    out_device.fetch();
  }
};

inline std::string name_case(const Product& p) {
  const Shape& w = p.weights.view.shape;
  return std::string(name_of(p.x.view.dtype)) + " x " + name_of(p.weights.view.scheme) + ", M " +
         std::to_string(p.x.view.shape.rows) + ", N " + std::to_string(w.rows) + ", K " +
         std::to_string(w.columns);
}

inline void expect_agrees(Product& p) {
  const Reference wanted = p.wanted();
  p.run();
  ASSERT_TRUE(agrees(p.out, wanted, name_case(p)));
  const double error = relative_error(p.out, wanted);
  if (p.out.view.dtype == DType::float32 && std::isfinite(error)) {
    ASSERT_LE(error, 2e-5) << name_case(p);
  }
}

}  // namespace mxkern::test
