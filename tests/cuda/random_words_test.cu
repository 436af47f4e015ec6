// tests/cuda/random_words_test.cu: the random words of octets are those of their elements.
#include "mxkern/kernels/random_words.cuh"
#include "tests/support/cuda_memory.h"
#include "tests/support/show.h"

namespace mxkern {
namespace {

using namespace test;
using Words = kernels::RandomWords<Rounding::stochastic>;

constexpr std::uint64_t seed = 0x123456789ABCDEFull;
constexpr std::uint64_t offset = 0xFEDCBA9876543210ull;

// A warp of octets or of column pairs from `index` on; counts words that are not philox_word's.
__global__ void compare_words(PhiloxKeys keys, std::uint64_t index, std::uint64_t columns,
                              unsigned* differences) {
  const kernels::RandomOffset in_call{offset, nullptr};
  Words random(keys, in_call);
  // Twice, with the upper half of the counter changing between.
  for (const std::uint64_t start : {index, index + (std::uint64_t{5} << 40), index}) {
    std::uint32_t words[8], pair[2][8];
    const std::uint64_t octet = start + threadIdx.x * 8;
    random.octet(octet, 1, words);
    random.column_pair(start + threadIdx.x * 2, columns, pair);
    // Whole octets never leave the first 2^32 calls.
    const bool whole = octet % 4 == 0 && octet + 8 <= std::uint64_t{1} << 34;
    std::uint32_t whole_words[8] = {};
    if (whole) Words(keys, in_call).whole_octet(static_cast<std::uint32_t>(octet / 4), whole_words);
    for (int i = 0; i < 8; ++i) {
      bool same = words[i] == philox_word(seed, offset, octet + i);
      same = same && (!whole || whole_words[i] == words[i]);
      for (int k = 0; k < 2; ++k) {
        const std::uint64_t element = start + threadIdx.x * 2 + k + i * columns;
        same = same && pair[k][i] == philox_word(seed, offset, element);
      }
      if (!same) atomicAdd(differences, 1u);
    }
  }
}

class CudaRandomWords : public CudaTest {};

TEST_F(CudaRandomWords, BelongToTheElements) {
  for (const std::uint64_t index : {std::uint64_t{0}, std::uint64_t{12}, std::uint64_t{13},
                                    (std::uint64_t{1} << 34) - 64, std::uint64_t{1} << 60}) {
    for (const std::uint64_t columns : {64, 68, 99}) {
      // Rows of a multiple of four elements start on one.
      if (index % 4 != 0 && columns % 4 == 0) continue;
      DeviceBytes memory(sizeof(unsigned));
      check_cuda(cudaMemset(memory.data(), 0, sizeof(unsigned)));
      compare_words<<<1, 32>>>(PhiloxKeys::of(seed), index, columns,
                               reinterpret_cast<unsigned*>(memory.data()));
      check_cuda(cudaGetLastError());
      unsigned found;
      check_cuda(cudaMemcpy(&found, memory.data(), sizeof found, cudaMemcpyDeviceToHost));
      EXPECT_EQ(found, 0u) << "elements from " << index << " on, " << columns << " columns";
    }
  }
}

}  // namespace
}  // namespace mxkern
