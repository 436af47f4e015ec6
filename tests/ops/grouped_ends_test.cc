// tests/ops/grouped_ends_test.cc: grouped products on the CPU while another thread writes to the
// ends.
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "mxkern/core/error.h"
#include "mxkern/grouped_gemm.h"
#include "tests/support/grouped_product.h"

namespace mxkern {
namespace {

using namespace test;

constexpr std::int32_t far_away = 1 << 30;

// Writes to one end for its lifetime: the one that is right, and others that are as wrong as can
// be.
class Writer {
 public:
  explicit Writer(std::int32_t& end) : thread_([this, &end, right = end] { write(end, right); }) {}
  ~Writer() {
    done_.store(true);
    thread_.join();
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

 private:
  void write(std::int32_t& end, std::int32_t right) {
    const std::atomic_ref<std::int32_t> value(end);
    while (!done_.load()) {
      for (const std::int32_t wrong : {far_away, -far_away, 0}) {
        value.store(wrong);
        value.store(right);
      }
    }
  }

  std::atomic<bool> done_{false};
  std::thread thread_;
};

// A call that ends in memory that is not its own ends the process.
template <class Groups, class Left>
void multiply_beside_a_writer(GroupedProduct<Left>& p, const Groups& groups) {
  p.fill(1);
  const GemmOperand a = p.a.operand();
  const BlockScaled b = p.b.quantized();
  const Buffer out = p.out.buffer();
  const AlignedMemory memory(grouped_gemm_workspace_bytes(a, b, groups, out, {}) + (1 << 20));
  int computed = 0, refused = 0;
  {
    const Writer writer(p.ends[1]);
    for (int i = 0; i < 20000 || ((computed == 0 || refused == 0) && i < 2000000); ++i) {
      try {
        grouped_gemm_workspace_bytes(a, b, groups, out, {});
        grouped_gemm(a, b, groups, out, {}, memory.workspace());
        ++computed;
      } catch (const InvalidArgument&) {
        ++refused;
      }
    }
  }
  EXPECT_GT(computed, 0);
  EXPECT_GT(refused, 0);
  grouped_gemm(a, b, groups, out, {}, memory.workspace());
  EXPECT_TRUE(agrees(p.out, p.wanted(), "ends that nobody writes to any more"));
}

TEST(GroupedEnds, OfRowsMayChangeDuringTheCall) {
  auto p = plain_product(DType::float32, {1, 9, 64}, Scheme::mxfp4, 6, {2, 5, 7}, DType::float32);
  multiply_beside_a_writer(p, p.groups());
}

TEST(GroupedEnds, OfColumnsMayChangeDuringTheCall) {
  auto p = quantized_product(Scheme::mxfp8_e4m3, {1, 5, 128}, Scheme::mxfp4, 6, {32, 64, 128},
                             DType::float32, ScaleLayout::swizzled, GroupAxis::columns);
  multiply_beside_a_writer(p, p.groups());
}

}  // namespace
}  // namespace mxkern
