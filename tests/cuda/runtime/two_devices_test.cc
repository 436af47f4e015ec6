// tests/cuda/runtime/two_devices_test.cc: work on a device that is not the current one, on its
// streams, and on two devices at the same time. Skipped where there is one device.
#include <algorithm>
#include <array>
#include <memory>
#include <thread>
#include <vector>

#include "mxkern/core/error.h"
#include "mxkern/mxkern.h"
#include "tests/support/compare_quantized.h"
#include "tests/support/cuda/memory.h"

namespace mxkern {
namespace {

using namespace test;

class CudaTwoDevices : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped() && cuda_device_count() < 2) GTEST_SKIP() << "there is one CUDA device";
  }
};

int current_device() {
  int index = -1;
  check_cuda(cudaGetDevice(&index));
  return index;
}

constexpr Shape shape{1, 320, 416};

// Every operation on arrays of a device, which is current while they are made, and what the CPU
// makes of the same.
class Work {
 public:
  Work(Device device, Scheme scheme, std::uint64_t seed)
      : device_(device),
        host_rows_(scheme, shape, ScaleLayout::row_major),
        host_columns_(scheme, shape.transposed(), ScaleLayout::swizzled),
        x_((fill_mixed(host_x_, seed, false), host_x_), false, device),
        y_(host_y_, false, device),
        turned_(host_turned_, false, device),
        rows_(host_rows_, false, device),
        columns_(host_columns_, false, device),
        tiles_(static_cast<std::size_t>(tile_bytes())),
        back_(static_cast<std::size_t>(tile_bytes())) {
    check_cuda(cudaDeviceSynchronize());
  }

  void run(Stream stream) {
    QuantizeOptions row_options, column_options;
    row_options.found_amax = rows_.found_amax();
    column_options.found_amax = columns_.found_amax();
    column_options.hadamard.size = 32;
    quantize_both(x_.buffer(), rows_.view(), columns_.view(), row_options, column_options, stream);
    quantize(x_.buffer(), rows_.view(), row_options, stream);
    quantize_columns(x_.buffer(), columns_.view(), column_options, stream);
    dequantize(rows_.view(), y_.buffer(), stream);
    random_hadamard(x_.buffer(), turned_.buffer(), {32}, false, stream);
    tensor_amax(x_.buffer(), amax_.address(), {}, stream);
    const BlockScaled& q = rows_.view();
    swizzle_scales(q.scales, tiles_.data(), 1, shape.rows, blocks(), device_, stream);
    unswizzle_scales(tiles_.data(), back_.data(), 1, shape.rows, blocks(), device_, stream);
  }

  void expect_results() {
    const CurrentDevice scope(device_);
    check_cuda(cudaDeviceSynchronize());
    Quantized rows(host_rows_.view.scheme, shape, ScaleLayout::row_major);
    Quantized columns(host_rows_.view.scheme, shape.transposed(), ScaleLayout::swizzled);
    QuantizeOptions column_options;
    column_options.hadamard.size = 32;
    quantize(host_x_.buffer(), rows.out());
    quantize_columns(host_x_.buffer(), columns.out(), column_options);
    EXPECT_TRUE(same_bytes(rows_.on_host(), rows));
    EXPECT_TRUE(same_bytes(columns_.on_host(), columns));
    Tensor y(DType::bfloat16, shape), turned(DType::bfloat16, shape);
    dequantize(rows.out(), y.buffer());
    random_hadamard(host_x_.buffer(), turned.buffer(), {32});
    y_.copy_to(host_y_);
    turned_.copy_to(host_turned_);
    int wrong = 0;
    y.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
      wrong += y.bits(b, r, c) != host_y_.bits(b, r, c);
      wrong += turned.bits(b, r, c) != host_turned_.bits(b, r, c);
    });
    EXPECT_EQ(wrong, 0) << "elements of dequantize or random_hadamard";
    float amax = 0.0f;
    tensor_amax(host_x_.buffer(), &amax);
    EXPECT_EQ(amax_.value(), amax);
    std::vector<std::uint8_t> back(static_cast<std::size_t>(shape.rows * blocks()));
    check_cuda(cudaMemcpy(back.data(), back_.data(), back.size(), cudaMemcpyDeviceToHost));
    EXPECT_TRUE(std::equal(back.begin(), back.end(), rows.view.scales));
  }

 private:
  std::int64_t blocks() const { return host_rows_.view.scale_index().blocks; }
  std::int64_t tile_bytes() const {
    return ScaleIndex{shape.rows, blocks(), ScaleLayout::swizzled}.size();
  }

  Device device_;
  Tensor host_x_{DType::bfloat16, shape};
  Tensor host_y_{DType::bfloat16, shape};
  Tensor host_turned_{DType::bfloat16, shape};
  Quantized host_rows_, host_columns_;
  DeviceTensor x_, y_, turned_;
  DeviceQuantized rows_, columns_;
  DeviceFloat amax_;
  DeviceBytes tiles_, back_;
};

std::unique_ptr<Work> work_on(Device device, Scheme scheme, std::uint64_t seed) {
  const CurrentDevice scope(device);
  return std::make_unique<Work>(device, scheme, seed);
}

TEST_F(CudaTwoDevices, ArraysOfADeviceThatIsNotCurrent) {
  for (const Scheme scheme : all_schemes) {
    const auto work = work_on(second_cuda_device, scheme, 7);
    check_cuda(cudaSetDevice(0));
    work->run({});
    EXPECT_EQ(current_device(), 0);
    work->expect_results();
  }
}

TEST_F(CudaTwoDevices, StreamsOfADeviceThatIsNotCurrent) {
  for (const Device device : {first_cuda_device, second_cuda_device}) {
    cudaStream_t stream;
    {
      const CurrentDevice scope(device);
      check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
    const auto work = work_on(device, Scheme::nvfp4, 8);
    const CurrentDevice elsewhere(Device{DeviceType::cuda, 1 - device.index});
    work->run({stream});
    EXPECT_EQ(current_device(), 1 - device.index);
    check_cuda(cudaStreamSynchronize(stream));
    work->expect_results();
    check_cuda(cudaStreamDestroy(stream));
  }
}

TEST_F(CudaTwoDevices, BothAtOnce) {
  const std::array devices = {first_cuda_device, second_cuda_device};
  std::vector<std::unique_ptr<Work>> works;
  for (const Device device : devices) works.push_back(work_on(device, Scheme::mxfp6_e3m2, 9));
  std::vector<std::thread> threads;
  for (const auto& work : works) {
    threads.emplace_back([&work] {
      EXPECT_NO_THROW({
        for (int i = 0; i < 50; ++i) work->run({});
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& work : works) work->expect_results();
}

TEST_F(CudaTwoDevices, MixedArraysAreRefused) {
  Quantized host(Scheme::mxfp8_e4m3, shape, ScaleLayout::row_major);
  Tensor host_x(DType::bfloat16, shape);
  DeviceTensor here(host_x);
  DeviceQuantized q_here(host);
  const CurrentDevice scope(second_cuda_device);
  DeviceTensor there(host_x, false, second_cuda_device);
  DeviceQuantized q_there(host, false, second_cuda_device);
  EXPECT_THROW(quantize(here.buffer(), q_there.view()), InvalidArgument);
  EXPECT_THROW(quantize(there.buffer(), q_here.view()), InvalidArgument);
  EXPECT_THROW(dequantize(q_here.view(), there.buffer()), InvalidArgument);
  EXPECT_THROW(random_hadamard(here.buffer(), there.buffer(), {16}), InvalidArgument);
  // One part of a tensor on another device than the tensor says.
  BlockScaled q = q_there.view();
  q.scales = q_here.view().scales;
  EXPECT_THROW(dequantize(q, there.buffer()), InvalidArgument);
  EXPECT_NO_THROW(quantize(there.buffer(), q_there.view()));
  check_cuda(cudaDeviceSynchronize());
}

}  // namespace
}  // namespace mxkern
