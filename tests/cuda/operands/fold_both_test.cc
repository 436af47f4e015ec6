// tests/cuda/operands/fold_both_test.cc: both operands of a product folded by one kernel are what
// two calls of fold make of them.
#include <algorithm>
#include <vector>

#include "cuda/operands/fold.h"
#include "mxkern/mxkern.h"
#include "tests/support/cuda/memory.h"
#include "tests/support/cuda/folded_rows.h"

namespace mxkern {
namespace {

using namespace test;

using CudaFoldBoth = CudaTest;

struct Side {
  Scheme scheme;
  Shape shape;
  ScaleLayout layout;
  std::int64_t first = 0;  // rows; 0: all
};

// An operand on the device, its rows as fold leaves them, and as fold_both does.
class Operand {
 public:
  Operand(const Side& side, int spread, RandomBits& random)
      : side_(side),
        host_(filled(side, spread, random)),
        device_(host_),
        wanted_(side.shape),
        got_(side.shape),
        memory_(wanted_.bytes.size()),
        progress_(counters() * sizeof(std::uint32_t)) {
    check_cuda(cudaMemset(progress_.data(), 0xCD, counters() * sizeof(std::uint32_t)));
    check_cuda(cudaMemset(memory_.data(), 0xCD, wanted_.bytes.size()));
    wanted_.fill_on_device(
        [&](std::uint8_t* memory) { cuda::fold("fold", device_.view(), memory, {}); });
  }

  cuda::FoldTask task() {
    cuda::FirstRows first;
    first.rows = side_.first;
    first.progress = reinterpret_cast<std::uint32_t*>(progress_.data());
    return {&device_.view(), memory_.data(), first};
  }

  void expect_folded(bool has_spreads) {
    check_cuda(
        cudaMemcpy(got_.bytes.data(), memory_.data(), got_.bytes.size(), cudaMemcpyDeviceToHost));
    const int limit = cuda::fold_facts(side_.scheme).spread_limit;
    const std::int64_t columns = side_.shape.columns;
    for (std::int64_t row = 0; row < side_.shape.rows; ++row) {
      if (side_.first > 0 && row >= side_.first) {
        ASSERT_EQ(got_.code(0, row, 0), 0xCD) << "row " << row << " is folded later";
        continue;
      }
      ASSERT_EQ(got_.exponent(row), wanted_.exponent(row)) << "row " << row;
      const std::uint8_t* wanted = &wanted_.bytes[static_cast<std::size_t>(row * columns)];
      const std::uint8_t* got = &got_.bytes[static_cast<std::size_t>(row * columns)];
      ASSERT_TRUE(std::equal(wanted, wanted + columns, got)) << "row " << row;
      if (!has_spreads) {
        ASSERT_EQ(got_.spread(row), 0xCD) << "row " << row;
      } else if (wanted_.spread(row) > limit) {
        ASSERT_EQ(got_.spread(row), wanted_.spread(row)) << "row " << row;
      } else {
        ASSERT_LE(got_.spread(row), limit) << "row " << row;
      }
    }
    std::vector<std::uint32_t> progress(counters());
    check_cuda(cudaMemcpy(progress.data(), progress_.data(), counters() * sizeof(std::uint32_t),
                          cudaMemcpyDeviceToHost));
    const std::uint32_t at_first = side_.first > 0 ? 0 : 0xCDCDCDCD;
    EXPECT_TRUE(std::all_of(progress.begin(), progress.end(),
                            [&](std::uint32_t word) { return word == at_first; }));
  }

 private:
  static Quantized filled(const Side& side, int spread, RandomBits& random) {
    Quantized q(side.scheme, side.shape, side.layout);
    fill(q, spread, random);
    q.out();
    return q;
  }
  std::size_t counters() const {
    return static_cast<std::size_t>(cuda::FirstRows::counters(side_.first, 0, side_.shape));
  }

  Side side_;
  Quantized host_;
  DeviceQuantized device_;
  Folded wanted_, got_;
  DeviceBytes memory_, progress_;
};

TEST_F(CudaFoldBoth, EqualsFold) {
  constexpr Scheme e4m3 = Scheme::mxfp8_e4m3, e5m2 = Scheme::mxfp8_e5m2;
  constexpr ScaleLayout plain = ScaleLayout::row_major, swizzled = ScaleLayout::swizzled;
  struct Case {
    Side a, b;
  };
  RandomBits random(5);
  for (const auto& [a, b] :
       {Case{{e4m3, {1, 300, 4096}, plain}, {e4m3, {1, 517, 4096}, plain}},
        {{e4m3, {1, 64, 128}, swizzled}, {e4m3, {1, 9, 128}, plain}},
        {{e4m3, {1, 1, 1152}, plain}, {e4m3, {1, 2, 1152}, swizzled}},
        {{e4m3, {1, 2000, 4096}, plain}, {e4m3, {1, 4500, 4096}, swizzled}},
        {{e4m3, {1, 33, 4224}, swizzled}, {e4m3, {1, 130, 4224}, plain}},
        {{e4m3, {1, 70, 14336}, plain}, {e4m3, {1, 200, 14336}, swizzled}},
        {{e5m2, {1, 300, 2176}, plain}, {e5m2, {1, 129, 2176}, swizzled}},
        {{e5m2, {1, 40, 12416}, swizzled}, {e5m2, {1, 50, 12416}, plain}},
        {{e4m3, {1, 256, 4096}, plain, 128}, {e4m3, {1, 300, 4096}, plain}},
        {{e4m3, {1, 90, 8192}, plain}, {e4m3, {1, 700, 8192}, swizzled, 384}}}) {
    for (const int spread : {3, 100}) {
      for (const bool finds_spreads : {true, false}) {
        Operand left(a, spread, random), right(b, spread, random);
        DeviceBytes words(100 * sizeof(std::uint32_t));
        check_cuda(cudaMemset(words.data(), 0xCD, 100 * sizeof(std::uint32_t)));
        ASSERT_TRUE(cuda::fold_both("fold", left.task(), right.task(), {},
                                    {reinterpret_cast<std::uint32_t*>(words.data()), 99},
                                    finds_spreads));
        left.expect_folded(finds_spreads);
        right.expect_folded(finds_spreads);
        std::vector<std::uint32_t> zeroed(100);
        check_cuda(cudaMemcpy(zeroed.data(), words.data(), 400, cudaMemcpyDeviceToHost));
        EXPECT_TRUE(std::all_of(zeroed.begin(), zeroed.end() - 1,
                                [](std::uint32_t word) { return word == 0; }));
        EXPECT_EQ(zeroed.back(), 0xCDCDCDCD);
      }
    }
  }
}

// What it does not take stays as it was.
TEST_F(CudaFoldBoth, LeavesOthersToFold) {
  constexpr ScaleLayout plain = ScaleLayout::row_major;
  RandomBits random(6);
  const auto takes = [&](const Side& a, const Side& b) {
    Operand left(a, 3, random), right(b, 3, random);
    return cuda::fold_both("fold", left.task(), right.task(), {}, {}, false);
  };
  const Side whole{Scheme::mxfp8_e4m3, {1, 64, 4096}, plain};
  EXPECT_TRUE(takes(whole, whole));
  EXPECT_FALSE(takes(whole, {Scheme::mxfp8_e5m2, {1, 64, 4096}, plain})) << "another scheme";
  EXPECT_FALSE(takes({Scheme::mxfp4, {1, 64, 4096}, plain}, {Scheme::mxfp4, {1, 64, 4096}, plain}))
      << "of 4 bits";
  const Side ragged{Scheme::mxfp8_e4m3, {1, 64, 4100}, plain};
  EXPECT_FALSE(takes(ragged, ragged)) << "a row that ends in a unit";
  EXPECT_FALSE(takes({Scheme::mxfp8_e4m3, {2, 64, 4096}, plain}, whole)) << "a batch";
}

}  // namespace
}  // namespace mxkern
