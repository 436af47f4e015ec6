// tests/cuda/quantize/random_words_test.cu: the random words of octets are those of their elements.
#include "mxkern/kernels/quantize/random_words.cuh"
#include "tests/support/cuda/memory.h"
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
    const std::uint64_t octet = start + threadIdx.x * 8;
    const Philox4 words = random.octet(octet);
    Philox4 pair[2];
    random.column_pair(start + threadIdx.x * 2, columns, pair);
    // Whole octets never leave the first 2^32 calls.
    const bool whole = octet % 8 == 0 && octet + 8 <= std::uint64_t{1} << 35;
    Philox4 whole_words = {};
    if (whole) {
      whole_words = Words(keys, in_call).whole_octet(static_cast<std::uint32_t>(octet / 8));
    }
    for (std::uint32_t i = 0; i < 8; ++i) {
      bool same = words.half(i) == philox_word(seed, offset, octet + i);
      same = same && (!whole || whole_words.half(i) == words.half(i));
      for (int k = 0; k < 2; ++k) {
        const std::uint64_t element = start + threadIdx.x * 2 + k + i * columns;
        same = same && pair[k].half(i) == philox_word(seed, offset, element);
      }
      if (!same) atomicAdd(differences, 1u);
    }
  }
}

class CudaRandomWords : public CudaTest {};

TEST_F(CudaRandomWords, BelongToTheElements) {
  for (const std::uint64_t index :
       {std::uint64_t{0}, std::uint64_t{24}, std::uint64_t{12}, std::uint64_t{13},
        std::uint64_t{15}, (std::uint64_t{1} << 35) - 64, (std::uint64_t{1} << 35) - 61,
        std::uint64_t{1} << 60}) {
    for (const std::uint64_t columns : {64, 72, 68, 70, 99}) {
      // Rows of a multiple of eight elements start on one.
      if (index % 8 != 0 && columns % 8 == 0) continue;
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
