// tests/cuda/runtime/streams_test.cc: streams, graph capture and devices: work goes where it is
// told to.
#include <atomic>
#include <memory>
#include <vector>

#include "mxkern/mxkern.h"
#include "tests/support/compare_quantized.h"
#include "tests/support/cuda/memory.h"

namespace mxkern {
namespace {

using namespace test;

using CudaStreams = CudaTest;

class OwnedStream {
 public:
  OwnedStream() { check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~OwnedStream() { cudaStreamDestroy(stream_); }
  cudaStream_t get() const { return stream_; }
  operator Stream() const { return {stream_}; }

 private:
  cudaStream_t stream_;
};

// Every operation once, with an amax of its own, transposed and decoded again.
struct Work {
  Tensor host_x{DType::bfloat16, {1, 256, 384}};
  Tensor host_y{DType::bfloat16, {1, 256, 384}};
  Quantized host_rows{Scheme::nvfp4, {1, 256, 384}, ScaleLayout::swizzled};
  Quantized host_columns{Scheme::nvfp4, {1, 384, 256}, ScaleLayout::swizzled};
  DeviceTensor x, y;
  DeviceQuantized rows, columns;

  explicit Work(std::uint64_t seed)
      : x((fill_mixed(host_x, seed, false), host_x)),
        y(host_y),
        rows(host_rows),
        columns(host_columns) {}

  void run(Stream stream) {
    QuantizeOptions row_options, column_options;
    row_options.found_amax = rows.found_amax();
    column_options.found_amax = columns.found_amax();
    column_options.hadamard.size = 16;
    quantize_both(x.buffer(), rows.view(), columns.view(), row_options, column_options, stream);
    dequantize(rows.view(), y.buffer(), stream);
  }

  void expect_results() {
    Quantized wanted_rows = host_rows, wanted_columns = host_columns;
    QuantizeOptions column_options;
    column_options.hadamard.size = 16;
    quantize_both(host_x.buffer(), wanted_rows.out(), wanted_columns.out(), {}, column_options);
    Tensor wanted(DType::bfloat16, host_y.shape());
    dequantize(wanted_rows.out(), wanted.buffer());
    ASSERT_TRUE(same_bytes(rows.on_host(), wanted_rows));
    ASSERT_TRUE(same_bytes(columns.on_host(), wanted_columns));
    y.copy_to(host_y);
    host_y.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
      if (::testing::Test::HasFatalFailure()) return;
      ASSERT_EQ(host_y.bits(b, r, c), wanted.bits(b, r, c)) << "at " << r << ", " << c;
    });
  }
};

TEST_F(CudaStreams, SeveralAtOnce) {
  std::vector<OwnedStream> streams(4);
  std::vector<std::unique_ptr<Work>> works;
  for (int i = 0; i < 12; ++i) works.push_back(std::make_unique<Work>(i + 1));
  check_cuda(cudaDeviceSynchronize());
  for (int i = 0; i < 12; ++i) works[i]->run(streams[i % 4]);
  check_cuda(cudaDeviceSynchronize());
  for (const auto& work : works) work->expect_results();
}

TEST_F(CudaStreams, CapturedIntoAGraph) {
  OwnedStream stream;
  Work work(1);
  check_cuda(cudaDeviceSynchronize());
  check_cuda(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal));
  work.run(stream);
  cudaGraph_t graph;
  check_cuda(cudaStreamEndCapture(stream.get(), &graph));
  cudaGraphExec_t executable;
  check_cuda(cudaGraphInstantiate(&executable, graph, 0));
  // Captured, nothing has run yet; and a replay reads what lies there then.
  for (const std::uint64_t seed : {2, 3}) {
    fill_mixed(work.host_x, seed, false);
    copy_to_device(work.x.buffer().data, work.host_x.bytes().data(),
                   static_cast<std::size_t>(work.host_x.bytes().size()));
    check_cuda(cudaGraphLaunch(executable, stream.get()));
    check_cuda(cudaStreamSynchronize(stream.get()));
    work.expect_results();
  }
  check_cuda(cudaGraphExecDestroy(executable));
  check_cuda(cudaGraphDestroy(graph));
}

// A call returns before its work has run: nothing in it waits for the device.
TEST_F(CudaStreams, CallsDoNotWait) {
  OwnedStream stream;
  Work work(1);
  work.run(stream);  // kernels are loaded at their first use, which may wait
  check_cuda(cudaDeviceSynchronize());
  struct Gate {
    static void wait(void* open) {
      while (!static_cast<std::atomic<bool>*>(open)->load()) {
      }
    }
  };
  std::atomic<bool> open = false;
  check_cuda(cudaLaunchHostFunc(stream.get(), Gate::wait, &open));
  work.run(stream);
  EXPECT_EQ(cudaStreamQuery(stream.get()), cudaErrorNotReady);
  open = true;
  check_cuda(cudaStreamSynchronize(stream.get()));
  work.expect_results();
}

TEST_F(CudaStreams, TheCurrentDeviceIsRestored) {
  if (cuda_device_count() < 2) GTEST_SKIP() << "there is one CUDA device";
  Work work(1);
  check_cuda(cudaSetDevice(1));
  work.run({});
  int current = -1;
  check_cuda(cudaGetDevice(&current));
  EXPECT_EQ(current, 1);
  check_cuda(cudaSetDevice(0));
  check_cuda(cudaDeviceSynchronize());
  work.expect_results();
}

}  // namespace
}  // namespace mxkern
