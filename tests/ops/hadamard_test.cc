// tests/ops/hadamard_test.cc: the random Hadamard transform against its definition and plain loops.
#include "mxkern/hadamard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "cpu/backend.h"
#include "mxkern/core/error.h"
#include "tests/support/error_message.h"
#include "tests/support/kernel_tables.h"
#include "tests/support/reference_quantize.h"
#include "tests/support/show.h"

namespace mxkern {
namespace {

using namespace test;

constexpr SignMask some_signs = {0x0123456789ABCDEFu, 0xFEDCBA9876543210u};

TEST(Hadamard, IsTheProductWithTheMatrix) {
  for (const int size : hadamard_sizes) {
    Tensor x(DType::float32, {1, 3, 2 * size});
    fill_mixed(x, static_cast<std::uint64_t>(size), false);
    x.for_each([&](auto b, auto r, auto c) { x.set(b, r, c, std::fmod(x.get(b, r, c), 8.0f)); });
    Tensor y(DType::float32, x.shape());
    random_hadamard(x.buffer(), y.buffer(), {size, some_signs});
    x.for_each([&](auto b, auto r, auto c) {
      const auto start = c / size * size;
      double sum = 0.0;
      for (int i = 0; i < size; ++i) {
        const double sign = some_signs.bit(i) != 0 ? -1.0 : 1.0;
        const double entry = std::popcount(static_cast<unsigned>(i & (c - start))) % 2 ? -1.0 : 1.0;
        sum += sign * entry * x.get(b, r, start + i);
      }
      ASSERT_NEAR(y.get(b, r, c), sum / std::sqrt(size), 1e-5 * size)
          << "size " << size << ", row " << r << ", column " << c;
    });
  }
}

TEST(Hadamard, EveryInstructionSetGivesTheBytesOfTheReference) {
  for (const DType dtype : all_dtypes) {
    for (const int size : hadamard_sizes) {
      for (const bool inverse : {false, true}) {
        Tensor x(dtype, {2, 5, 3 * size}, 7);
        fill_mixed(x, static_cast<std::uint64_t>(size));
        std::vector<float> wanted;
        x.for_each([&](auto b, auto r, auto c) { wanted.push_back(x.get(b, r, c)); });
        transform_lines(wanted, dtype, {size, some_signs}, inverse);
        for (const cpu::InstructionSet set : available_instruction_sets()) {
          Tensor y(dtype, x.shape(), 2);
          cpu::random_hadamard(x.buffer(), y.buffer(), {size, some_signs}, inverse,
                               cpu::kernels_for(set));
          std::size_t i = 0;
          y.for_each([&](auto b, auto r, auto c) {
            const float value = wanted[i++];
            // All NaNs are one.
            const float expected = value != value ? float_of(float32::nan_bits) : value;
            ASSERT_EQ(bits_of(y.get(b, r, c)), bits_of(expected))
                << cpu::name_of(set) << ", " << name_of(dtype) << ", size " << size << " at [" << b
                << ", " << r << ", " << c << "]: " << show(y.get(b, r, c)) << ", wanted "
                << show(expected);
          });
          ASSERT_TRUE(y.bytes().margins_are_intact());
        }
      }
    }
  }
}

TEST(Hadamard, TheInverseUndoesIt) {
  for (const int size : hadamard_sizes) {
    Tensor x(DType::float32, {1, 4, 4 * size});
    x.for_each([&](auto b, auto r, auto c) {
      x.set(b, r, c, static_cast<float>((r * 37 + c * 101) % 257) - 128.0f);
    });
    Tensor y(DType::float32, x.shape());
    random_hadamard(x.buffer(), y.buffer(), {size, some_signs});
    random_hadamard(y.buffer(), y.buffer(), {size, some_signs}, true);
    x.for_each([&](auto b, auto r, auto c) {
      ASSERT_NEAR(y.get(b, r, c), x.get(b, r, c), 1e-3) << "size " << size << ", column " << c;
    });
  }
}

TEST(Hadamard, OutIsXOrMemoryOfItsOwn) {
  std::vector<float> memory(1024, 1.0f);
  const auto at = [&](std::ptrdiff_t first, std::int64_t rows, std::int64_t stride) {
    return Buffer{memory.data() + first, DType::float32, {1, rows, 32}, stride, rows * stride, {}};
  };
  const auto message = [&](const Buffer& x, const Buffer& out) {
    return error_message([&] { random_hadamard(x, out, {16}); });
  };
  const std::string fine = "(nothing was thrown)";
  const std::string refused =
      "random_hadamard: out overlaps x; expected memory of its own; write to another buffer and "
      "copy it";
  EXPECT_EQ(message(at(0, 4, 32), at(0, 4, 32)), fine);
  EXPECT_EQ(message(at(0, 4, 40), at(0, 4, 40)), fine);
  EXPECT_EQ(message(at(0, 4, 32), at(128, 4, 32)), fine);
  EXPECT_EQ(message(at(0, 4, 64), at(32, 4, 64)), fine);  // in the gaps of one another
  EXPECT_EQ(message(at(0, 4, 32), at(16, 4, 32)), refused);
  EXPECT_EQ(message(at(16, 4, 32), at(0, 4, 32)), refused);
  EXPECT_EQ(message(at(0, 4, 64), at(31, 4, 64)), refused);
  EXPECT_EQ(message(at(0, 4, 64), at(0, 4, 40)), refused);
  // The strides of a single row mean nothing.
  EXPECT_EQ(message(at(0, 1, 32), at(0, 1, 77)), fine);
  Buffer out{memory.data(), DType::float32, {2, 2, 32}, 32, 0, {}};
  Buffer x = out;
  x.data = memory.data() + 512;
  EXPECT_EQ(message(x, out),
            "random_hadamard: out has strides of 32 and 0 elements for the shape [2, 2, 32]; "
            "expected rows and matrices that do not overlap");
}

TEST(Hadamard, RefusesWrongArguments) {
  Tensor x(DType::float32, {1, 2, 48});
  Tensor y(DType::float32, {1, 2, 48});
  Tensor half(DType::float16, {1, 2, 48});
  EXPECT_EQ(error_message([&] { random_hadamard(x.buffer(), y.buffer(), {8}); }),
            "random_hadamard: size is 8; expected 16, 32, 64 or 128");
  EXPECT_EQ(error_message([&] { random_hadamard(x.buffer(), y.buffer(), {32}); }),
            "random_hadamard: x has 48 columns; expected a multiple of the size 32");
  const Buffer nowhere = Buffer::dense(nullptr, DType::float32, {1, 2, 48});
  EXPECT_EQ(error_message([&] { random_hadamard(x.buffer(), nowhere, {16}); }),
            "random_hadamard: out has shape [1, 2, 48] but a null pointer; expected memory that "
            "holds it");
  EXPECT_EQ(error_message([&] { random_hadamard(nowhere, y.buffer(), {16}); }),
            "random_hadamard: x has shape [1, 2, 48] but a null pointer; expected memory that "
            "holds it");
  EXPECT_THROW(random_hadamard(x.buffer(), half.buffer(), {16}), InvalidType);
  EXPECT_EQ(error_message([&] { random_hadamard(x.buffer(), half.buffer(), {16}); }),
            "random_hadamard: out has dtype float16; expected that of x, float32");
}

TEST(Hadamard, RefusesTwoDevicesAndRowsMovedInPlace) {
  Tensor x(DType::float32, {1, 2, 32}), y = x;
  Buffer out = y.buffer();
  out.device = {DeviceType::cpu, 1};
  EXPECT_EQ(error_message([&] { random_hadamard(x.buffer(), out, {16}); }),
            "random_hadamard: out is on cpu:1; expected cpu, where the other arguments are");
  std::vector<float> memory(1024, 1.0f);
  const Buffer wide{memory.data(), DType::float32, {2, 2, 32}, 64, 256, {}};
  Buffer narrow = wide;
  narrow.batch_stride = 128;
  EXPECT_EQ(error_message([&] { random_hadamard(wide, narrow, {16}); }),
            "random_hadamard: out overlaps x; expected memory of its own; write to another buffer "
            "and copy it");
}

}  // namespace
}  // namespace mxkern
