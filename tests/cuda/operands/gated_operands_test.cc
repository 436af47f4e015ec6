// tests/cuda/operands/gated_operands_test.cc: operands that are made behind a gate: as without one,
// or not.
#include "cuda/operands/gated_operands.h"

#include <vector>

#include "cuda/operands/expand.h"
#include "mxkern/core/error.h"
#include "tests/support/cuda/operand.h"
#include "tests/support/show.h"

namespace mxkern {
namespace {

using namespace test;

using CudaGatedOperands = CudaTest;

constexpr std::uint8_t poison = 0xCD;

// Memory that is full of poison until something is made in it.
class Made {
 public:
  explicit Made(std::int64_t bytes)
      : host_(static_cast<std::size_t>(bytes), poison), device_(host_) {}

  std::uint8_t* data() { return device_.data(); }
  std::vector<std::uint8_t> bytes() {
    device_.copy_to(host_);
    return host_;
  }

 private:
  std::vector<std::uint8_t> host_;
  DeviceCopy device_;
};

// Codes of a scheme to expand, and of another one; and how they are made, behind a gate or without.
struct Operands {
  DeviceQuantizedOperand device_first, device_second;
  GemmOperand first, second;
  Made first_memory, second_memory;

  Operands(QuantizedOperand& a, QuantizedOperand& b)
      : device_first(a),
        device_second(b),
        first(device_first.view()),
        second(device_second.view()),
        first_memory(cuda::expanded_layout(first).bytes),
        second_memory(cuda::expanded_layout(second).bytes) {}

  void make_alone() {
    cuda::expand("expand", {&first, first_memory.data()}, {&second, second_memory.data()}, {});
  }
  void make_behind(const cuda::CoreGate& gate, const cuda::RowScaled& left,
                   const cuda::RowScaled& right) {
    cuda::gated_operands("gated", {&first, first_memory.data()}, {&second, second_memory.data()},
                         gate, left, right, {});
  }
  std::vector<std::uint8_t> bytes() {
    std::vector<std::uint8_t> all = first_memory.bytes();
    const std::vector<std::uint8_t> more = second_memory.bytes();
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

QuantizedOperand random_codes(Scheme scheme, const Shape& shape, int seed) {
  QuantizedOperand operand(scheme, shape, all_scale_layouts[seed % 2]);
  operand.quantize(normal_values(static_cast<std::uint64_t>(seed)));
  return operand;
}

cuda::RowScaled with_spreads(const std::uint8_t* spreads, std::int64_t rows) {
  cuda::RowScaled view = {};
  view.batch = 1;
  view.rows = rows;
  view.spreads = spreads;
  return view;
}

constexpr Scheme foldable[] = {Scheme::mxfp8_e4m3, Scheme::mxfp8_e5m2, Scheme::mxfp6_e3m2,
                               Scheme::mxfp6_e2m3, Scheme::mxfp4};

TEST_F(CudaGatedOperands, EverySchemeAsWithoutAGate) {
  const Shape shapes[] = {{1, 1, 32}, {1, 700, 160}, {2, 33, 100}, {1, 5, 4096}};
  for (std::size_t i = 0; i < std::size(foldable); ++i) {
    for (const Shape& shape : shapes) {
      const int seed = static_cast<int>(i) + 1;
      QuantizedOperand a = random_codes(foldable[i], shape, seed);
      QuantizedOperand b = random_codes(foldable[(i + 2) % 5], {1, 40, 64}, seed + 5);
      Operands alone(a, b);
      alone.make_alone();
      for (const bool is_settled : {false, true}) {
        Operands gated(a, b);
        gated.make_behind({false, true, 0, 0, is_settled}, with_spreads(nullptr, 0),
                          with_spreads(nullptr, 0));
        ASSERT_TRUE(gated.bytes() == alone.bytes())
            << name_of(foldable[i]) << ", " << shape.rows << " rows";
      }
    }
  }
}

// One spread, anywhere, decides; and then all is made or nothing is touched.
TEST_F(CudaGatedOperands, TheGateDecides) {
  QuantizedOperand a = random_codes(Scheme::mxfp8_e4m3, {1, 8, 64}, 1);
  QuantizedOperand b = random_codes(Scheme::mxfp4, {1, 8, 64}, 2);
  Operands alone(a, b);
  const std::vector<std::uint8_t> untouched = alone.bytes();
  alone.make_alone();
  const std::vector<std::uint8_t> made = alone.bytes();
  ASSERT_TRUE(made != untouched);
  constexpr int left_rows = 1001, right_rows = 4999;  // the last ones are no whole 16 bytes
  for (const int wide_row : {-1, 0, 17, 999, 1000}) {
    for (const bool on_left : {false, true}) {
      for (const int kind : {0, 1, 2, 3}) {
        const bool wants_narrow = kind % 2 == 0, is_settled = kind / 2 == 1;
        std::vector<std::uint8_t> left(left_rows, 3), right(right_rows, 7);
        if (wide_row >= 0 && on_left) left[static_cast<std::size_t>(wide_row)] = 4;
        if (wide_row >= 0 && !on_left) right[static_cast<std::size_t>(wide_row * 4 + 2)] = 8;
        DeviceCopy device_left(left, kind), device_right(right, kind == 3 ? 16 : 0);
        Operands gated(a, b);
        gated.make_behind({false, wants_narrow, 3, 7, is_settled},
                          with_spreads(device_left.data(), left_rows),
                          with_spreads(device_right.data(), right_rows));
        const bool runs = (wide_row < 0) == wants_narrow;
        ASSERT_TRUE(gated.bytes() == (runs ? made : untouched))
            << "wide row " << wide_row << (on_left ? " on the left" : " on the right") << ", kind "
            << kind;
      }
    }
  }
}

TEST_F(CudaGatedOperands, RefusesWhatCannotBeFolded) {
  QuantizedOperand a = random_codes(Scheme::nvfp4, {1, 8, 64}, 1);
  DeviceQuantizedOperand device_a(a);
  const GemmOperand operand(device_a.view());
  try {
    cuda::gated_operands("gated", {&operand, nullptr}, {}, {}, with_spreads(nullptr, 0),
                         with_spreads(nullptr, 0), {});
    FAIL() << "was taken";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(error.what(),
                 "gated: an operand behind a gate is nvfp4; expected one that can be folded");
  }
}

}  // namespace
}  // namespace mxkern
