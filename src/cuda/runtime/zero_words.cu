// cuda/runtime/zero_words.cu: the launch of the kernel that sets words to zeros.
#include "cuda/runtime/zero_words.h"

#include "cuda/runtime/launch.h"
#include "mxkern/kernels/device/zero_words.cuh"

namespace mxkern::cuda {

void zero_words(const char* function, const ZeroedWords& words, Stream stream) {
  if (words.count == 0) return;
  constexpr int threads = 1024, words_of_one = 4;
  const std::int64_t blocks = ceil_div(std::int64_t{words.count}, threads * words_of_one);
  launch<Start::early>(function, kernels::zero_words_kernel, grid_of(blocks), threads, 0, stream,
                       kernels::ZeroedCounters{words.data, words.count});
}

void stand_between(const char* function, Stream stream) {
  launch(function, kernels::zero_words_kernel, grid_of(1), 32, 0, stream,
         kernels::ZeroedCounters{});
}

}  // namespace mxkern::cuda
