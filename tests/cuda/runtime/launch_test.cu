// tests/cuda/runtime/launch_test.cu: launches of one kernel by several threads.
#include "cuda/runtime/launch.h"

#include <string>
#include <thread>

#include "tests/support/cuda/memory.h"

namespace mxkern::cuda {
namespace {

using CudaLaunch = test::CudaTest;

__global__ void do_nothing() {}

// Grids ask for shared memory by their size, so that threads launch the same kernel with more and
// with less of it at the same time.
TEST_F(CudaLaunch, ThreadsThatAskForMoreAndLessSharedMemory) {
  constexpr int launches = 20000;
  std::string errors[2];
  const auto work = [&](std::size_t bytes, std::string& error) {
    try {
      for (int i = 0; i < launches; ++i) {
        launch("test", do_nothing, dim3(1), 32, bytes, {cudaStreamPerThread});
      }
      test::check_cuda(cudaStreamSynchronize(cudaStreamPerThread));
    } catch (const std::exception& e) {
      error = e.what();
    }
  };
  std::thread more(work, 95000, std::ref(errors[0])), less(work, 60000, std::ref(errors[1]));
  more.join();
  less.join();
  EXPECT_EQ(errors[0], "");
  EXPECT_EQ(errors[1], "");
}

}  // namespace
}  // namespace mxkern::cuda
