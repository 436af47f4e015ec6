// tests/ops/custom_test.cc: schemes that are known at run time: the bytes of compiled ones, and the
// same bytes by every instruction set.
#include "mxkern/custom.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "cpu/any/backend.h"
#include "mxkern/dequantize.h"
#include "mxkern/fake_quantize.h"
#include "mxkern/quantize.h"
#include "tests/support/any_schemes.h"
#include "tests/support/error_message.h"
#include "tests/support/kernel_tables.h"
#include "tests/support/quantize_options.h"

namespace mxkern {
namespace {

using namespace test;

AnyOptions any_options(const QuantizeOptions& options) {
  AnyOptions any;
  any.scale.rule = options.scale_rule;
  if (options.rounding == Rounding::stochastic) any.rounding.rounding = AnyRounding::stochastic;
  any.seed = options.seed;
  any.offset = options.offset;
  any.square = options.block_shape == BlockShape::square;
  return any;
}

TEST(Custom, BytesOfCompiledSchemes) {
  std::uint64_t turn = 0;
  for (const Scheme scheme : all_schemes) {
    for_each_option(scheme, [&](const QuantizeOptions& options) {
      if (options.hadamard.size != 0 || options.four_over_six) return;
      if (options.amax != nullptr || options.tensor_scale != nullptr) return;
      for (const DType dtype : all_dtypes) {
        for (const Shape& shape : {Shape{1, 1, 16}, Shape{2, 37, 83}, Shape{1, 3, 4200}}) {
          if (HasFatalFailure()) return;
          for (const ScaleLayout layout : all_scale_layouts) {
            Tensor x(dtype, shape, static_cast<std::int64_t>(++turn % 3));
            fill_mixed(x, turn);
            Quantized want(scheme, shape, layout);
            quantize(x.buffer(), want.out(), options);
            AnyMemory got(AnyScheme::of(scheme), shape, layout);
            quantize(AnyBuffer(x.buffer()), got.view, any_options(options));
            const auto sizes = BlockScaled::sizes(scheme, shape, layout);
            ASSERT_EQ(static_cast<std::int64_t>(got.codes.size()), sizes.codes);
            ASSERT_EQ(static_cast<std::int64_t>(got.scales.size()), sizes.scales);
            const BlockScaled view = want.out();
            ASSERT_EQ(std::memcmp(got.codes.data(), view.codes, got.codes.size()), 0)
                << describe(x, options);
            ASSERT_EQ(std::memcmp(got.scales.data(), view.scales, got.scales.size()), 0)
                << describe(x, options);
            Tensor value(dtype, shape), wanted(dtype, shape);
            dequantize(view, wanted.buffer());
            dequantize(got.view, AnyBuffer(value.buffer()));
            value.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
              ASSERT_EQ(value.bits(b, r, c), wanted.bits(b, r, c)) << describe(x, options);
            });
          }
        }
      }
    });
  }
}

TEST(Custom, EveryInstructionSetGivesTheSameBytes) {
  std::mt19937_64 random(20);
  const Shape shapes[] = {{1, 1, 1}, {2, 5, 33}, {1, 21, 130}, {1, 2, 5000}, {3, 1, 64}};
  for (int turn = 0; turn < 300; ++turn) {
    const Drawn drawn = draw(random);
    const Shape& shape = shapes[turn % 5];
    Tensor x(all_dtypes[turn % 3], shape, turn % 2);
    fill_mixed(x, static_cast<std::uint64_t>(turn));
    const AnyBuffer view(x.buffer());
    AnyMemory want(drawn.scheme, shape);
    const auto& baseline = cpu::kernels_for(cpu::InstructionSet::baseline);
    cpu::quantize_any(view, want.view, drawn.options, baseline);
    Tensor decoded(x.dtype(), shape), plain(x.dtype(), shape);
    cpu::dequantize_any(want.view, AnyBuffer(decoded.buffer()), baseline);
    for (const cpu::InstructionSet set : available_instruction_sets()) {
      const auto& kernels = cpu::kernels_for(set);
      AnyMemory got(drawn.scheme, shape);
      cpu::quantize_any(view, got.view, drawn.options, kernels);
      ASSERT_TRUE(got == want) << cpu::name_of(set) << ", turn " << turn;
      cpu::dequantize_any(got.view, AnyBuffer(plain.buffer()), kernels);
      Tensor fake(x.dtype(), shape);
      cpu::fake_quantize_any(view, drawn.scheme, AnyBuffer(fake.buffer()), drawn.options, kernels);
      plain.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
        ASSERT_EQ(plain.bits(b, r, c), decoded.bits(b, r, c)) << cpu::name_of(set) << ", " << turn;
        ASSERT_EQ(fake.bits(b, r, c), decoded.bits(b, r, c)) << cpu::name_of(set) << ", " << turn;
      });
    }
  }
}

// float64 that float32 holds gives what float32 does.
TEST(Custom, Float64) {
  std::mt19937_64 random(21);
  for (int turn = 0; turn < 200; ++turn) {
    const Drawn drawn = draw(random);
    if (drawn.scheme.scale.kind != AnyScaleKind::power) continue;  // else products are rounded
    if (drawn.options.scale.mse) continue;                         // and errors
    const AnyRounding rounding = drawn.options.rounding.rounding;
    // float32 products that are 0 in float32 have no side.
    if (rounding == AnyRounding::up || rounding == AnyRounding::down) continue;
    const Shape shape{1, 7, 150};
    Tensor x(DType::float32, shape);
    fill_mixed(x, static_cast<std::uint64_t>(turn));
    Tensor want(DType::float32, shape);
    fake_quantize(AnyBuffer(x.buffer()), drawn.scheme, AnyBuffer(want.buffer()), drawn.options);
    std::vector<double> wide(static_cast<std::size_t>(shape.size()));
    for (std::int64_t i = 0; i < shape.size(); ++i) {
      wide[static_cast<std::size_t>(i)] = x.get(0, i / shape.columns, i % shape.columns);
    }
    for (const cpu::InstructionSet set : available_instruction_sets()) {
      std::vector<double> out = wide;
      const AnyBuffer view(Buffer::dense(static_cast<void*>(out.data()), DType::float32, shape),
                           true);
      cpu::fake_quantize_any(view, drawn.scheme, view, drawn.options, cpu::kernels_for(set));
      for (std::int64_t i = 0; i < shape.size(); ++i) {
        const float got = static_cast<float>(out[static_cast<std::size_t>(i)]);
        const float wanted = want.get(0, i / shape.columns, i % shape.columns);
        if (std::isnan(wanted)) {
          ASSERT_TRUE(std::isnan(got)) << turn;
        } else {
          ASSERT_EQ(bits_of(got), bits_of(wanted))
              << cpu::name_of(set) << ", " << turn << ", " << i;
        }
      }
    }
  }
}

TEST(Custom, SumsInANarrowerFormat) {
  const std::int64_t m = 5, n = 70, k = 300;
  Tensor a(DType::float32, {1, m, k}), b(DType::float32, {1, n, k}), out(DType::float32, {1, m, n});
  std::mt19937_64 random(3);
  for (std::int64_t i = 0; i < k; ++i) {
    for (std::int64_t r = 0; r < m; ++r) a.set(0, r, i, static_cast<float>(random() % 17) / 8 - 1);
    for (std::int64_t r = 0; r < n; ++r) b.set(0, r, i, static_cast<float>(random() % 17) / 8 - 1);
  }
  const AnyFormat half{5, 10, true, false, Specials::ieee};
  for (const cpu::InstructionSet set : available_instruction_sets()) {
    cpu::accumulate_products(a.buffer(), b.buffer(), out.buffer(), half, {.saturates = false}, {},
                             cpu::kernels_for(set));
    for (std::int64_t r = 0; r < m; ++r) {
      for (std::int64_t c = 0; c < n; ++c) {
        double sum = 0;
        for (std::int64_t i = 0; i < k; ++i) {
          const double next = sum + double{a.get(0, r, i)} * double{b.get(0, c, i)};
          sum = decode(half, encode(half, {.saturates = false}, next));
        }
        ASSERT_EQ(out.get(0, r, c), static_cast<float>(sum)) << cpu::name_of(set);
      }
    }
  }
}

TEST(Custom, RefusesWhatIsNoScheme) {
  Tensor x(DType::float32, {1, 4, 64}), y = x;
  const auto message = [&](const AnyScheme& scheme, const AnyOptions& options = {}) {
    return error_message(
        [&] { fake_quantize(AnyBuffer(x.buffer()), scheme, AnyBuffer(y.buffer()), options); });
  };
  AnyScheme wide, special, negative, two_level;
  wide.element = {6, 3};
  special.element = {4, 0, true, false, Specials::ieee};
  negative.block_columns = -1;
  two_level.tensor_scales = TensorScales::tensor;
  AnyOptions bits, threshold;
  bits.rounding.random_bits = 17;
  threshold.scale.threshold = 3.0f;
  const auto says = [](const std::string& got, const char* wanted) {
    EXPECT_NE(got.find(wanted), std::string::npos) << got;
  };
  says(message(wide), "at most 5 exponent bits");
  says(message(special), "IEEE specials");
  says(message(negative), "blocks of 1 x -1");
  says(message(two_level), "tensor scale");
  says(message({}, bits), "random_bits");
  says(message({}, threshold), "threshold");
}

}  // namespace
}  // namespace mxkern
