// tests/ops/fake_quantize_test.cc: fake_quantize is quantize and dequantize, with every option.
#include "mxkern/fake_quantize.h"

#include <gtest/gtest.h>

#include <cmath>

#include "cpu/backend.h"
#include "mxkern/core/error.h"
#include "mxkern/dequantize.h"
#include "tests/support/error_message.h"
#include "tests/support/kernel_tables.h"
#include "tests/support/quantize_options.h"

namespace mxkern {
namespace {

using namespace test;

Tensor by_two_calls(Tensor& x, Scheme scheme, const QuantizeOptions& options) {
  Quantized q(scheme, x.shape(), ScaleLayout::row_major);
  quantize(x.buffer(), q.out(), options);
  Tensor y(x.dtype(), x.shape());
  dequantize(q.out(), y.buffer());
  return y;
}

void expect_same(const Tensor& got, const Tensor& wanted, const std::string& what) {
  got.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
    if (::testing::Test::HasFatalFailure()) return;
    ASSERT_EQ(got.bits(b, r, c), wanted.bits(b, r, c))
        << what << " at [" << b << ", " << r << ", " << c << "]: " << got.get(b, r, c)
        << ", wanted " << wanted.get(b, r, c);
  });
  ASSERT_TRUE(got.bytes().margins_are_intact()) << what;
}

TEST(FakeQuantize, IsQuantizeAndDequantizeWithEveryOption) {
  int turn = 0;
  for (const Scheme scheme : all_schemes) {
    for_each_option(scheme, [&](const QuantizeOptions& options) {
      for (const DType dtype : all_dtypes) {
        for (const Shape& shape :
             {Shape{1, 1, 16}, Shape{2, 37, 83}, Shape{1, 70, 300}, Shape{3, 2, 128}}) {
          if (HasFatalFailure()) return;
          Tensor x(dtype, shape, ++turn % 3), y(dtype, shape, turn % 2);
          fill_mixed(x, static_cast<std::uint64_t>(turn));
          const Tensor wanted = by_two_calls(x, scheme, options);
          fake_quantize(x.buffer(), scheme, y.buffer(), options);
          expect_same(y, wanted, concatenate(name_of(scheme), ", ", describe(x, options)));
        }
      }
    });
  }
}

TEST(FakeQuantize, EveryInstructionSet) {
  for (const cpu::InstructionSet set : available_instruction_sets()) {
    for (const Scheme scheme : all_schemes) {
      Tensor x(DType::bfloat16, {1, 40, 500}), y = x;
      fill_mixed(x, 3);
      const Tensor wanted = by_two_calls(x, scheme, {});
      cpu::fake_quantize(x.buffer(), scheme, y.buffer(), {}, cpu::kernels_for(set));
      expect_same(y, wanted, concatenate(cpu::name_of(set), ", ", name_of(scheme)));
    }
  }
}

// Tiles of rows longer than a piece, and more of them than one thread takes; x itself is written
// to.
TEST(FakeQuantize, LargeTensorsInPlace) {
  for (const Rounding rounding : all_roundings) {
    for (const BlockShape block_shape : all_block_shapes) {
      const QuantizeOptions options{.rounding = rounding, .seed = 7, .block_shape = block_shape};
      Tensor x(DType::float32, {1, 66, 40005});
      fill_mixed(x, 11);
      const Tensor wanted = by_two_calls(x, Scheme::mxfp6_e2m3, options);
      fake_quantize(x.buffer(), Scheme::mxfp6_e2m3, x.buffer(), options);
      expect_same(x, wanted, describe(x, options));
    }
  }
}

// Many rows that are shorter than a block: codes fill blocks up.
TEST(FakeQuantize, ManyShortRows) {
  for (const Scheme scheme : all_schemes) {
    for (const Rounding rounding : all_roundings) {
      for (const BlockShape block_shape : all_block_shapes) {
        for (const std::int64_t columns : {1, 8, 17, 33}) {
          const QuantizeOptions options{.rounding = rounding, .block_shape = block_shape};
          Tensor x(DType::float32, {1, 40000 / columns, columns}), y = x;
          fill_mixed(x, 13);
          fake_quantize(x.buffer(), scheme, y.buffer(), options);
          expect_same(y, by_two_calls(x, scheme, options), describe(x, options));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST(FakeQuantize, ScalarsOfNvfp4) {
  Tensor x(DType::float32, {1, 5, 64}), y = x;
  fill_mixed(x, 5, false);
  const float amax = 3.0f, scale = 0.25f;
  const std::uint64_t offset = 9;
  float found = -1.0f, wanted_amax = 0.0f;
  tensor_amax(x.buffer(), &wanted_amax);
  for (const QuantizeOptions& options :
       {QuantizeOptions{.amax = &amax}, QuantizeOptions{.tensor_scale = &scale},
        QuantizeOptions{.found_amax = &found},
        QuantizeOptions{.rounding = Rounding::stochastic, .offset_at = &offset}}) {
    fake_quantize(x.buffer(), Scheme::nvfp4, y.buffer(), options);
    expect_same(y, by_two_calls(x, Scheme::nvfp4, options), describe(x, options));
  }
  EXPECT_EQ(found, wanted_amax);
}

TEST(FakeQuantize, EmptyTensors) {
  for (const Scheme scheme : all_schemes) {
    const Buffer none = Buffer::dense(nullptr, DType::float32, {1, 0, 32});
    fake_quantize(none, scheme, none);
  }
}

TEST(FakeQuantize, RefusesWrongArguments) {
  Tensor x(DType::float32, {1, 2, 64}), y = x, half(DType::float16, {1, 2, 64}),
                                        narrow(DType::float32, {1, 2, 32});
  fill_mixed(x, 1);
  const auto message = [&](const Buffer& out, Scheme scheme, const QuantizeOptions& options) {
    return error_message([&] { fake_quantize(x.buffer(), scheme, out, options); });
  };
  EXPECT_EQ(message(half.buffer(), Scheme::mxfp4, {}),
            "fake_quantize: out has dtype float16; expected that of x, float32");
  EXPECT_EQ(message(narrow.buffer(), Scheme::mxfp4, {}),
            "fake_quantize: out has shape [1, 2, 32]; expected [1, 2, 64]");
  EXPECT_EQ(message(y.buffer(), static_cast<Scheme>(77), {}),
            "fake_quantize: scheme number 77; expected one of the schemes");
  EXPECT_EQ(message(y.buffer(), Scheme::mxfp4, {.hadamard = {16}}),
            "fake_quantize: a Hadamard transform of size 16; expected 0, none; call "
            "random_hadamard before");
  Buffer shifted =
      Buffer::dense(reinterpret_cast<float*>(x.bytes().data()) + 8, DType::float32, {1, 1, 64});
  Buffer first = Buffer::dense(x.bytes().data(), DType::float32, {1, 1, 64});
  EXPECT_EQ(error_message([&] { fake_quantize(first, Scheme::mxfp4, shifted); }),
            "fake_quantize: out overlaps x; expected memory of its own; write to another buffer "
            "and copy it");
  auto* inside = reinterpret_cast<float*>(y.bytes().data());
  *inside = 1.0f;
  EXPECT_EQ(message(y.buffer(), Scheme::nvfp4, {.amax = inside}),
            "fake_quantize: out overlaps amax; expected memory of its own; write to another "
            "buffer and copy it");
  EXPECT_EQ(message(y.buffer(), Scheme::nvfp4, {.found_amax = inside}),
            "fake_quantize: found_amax overlaps out; expected memory of its own; write to another "
            "buffer and copy it");
}

}  // namespace
}  // namespace mxkern
