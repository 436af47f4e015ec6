// tests/numerics/any_codec_test.cc: formats and scales that are known at run time are those that
// are compiled.
#include "mxkern/numerics/any_codec.h"
#include "mxkern/numerics/any_nearest.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "mxkern/numerics/block_scale.h"
#include "mxkern/numerics/codec.h"
#include "mxkern/numerics/rounding.h"
#include "mxkern/tensor/any_scheme.h"
#include "tests/support/format_list.h"
#include "tests/support/show.h"

namespace mxkern {
namespace {

using test::show;

template <class Format>
class AnyCodecTest : public ::testing::Test {
 protected:
  static constexpr AnyFormat format = AnyFormat::of<Format>();
};
TYPED_TEST_SUITE(AnyCodecTest, test::FormatTypes, test::NameOfType);

TYPED_TEST(AnyCodecTest, HasTheLimits) {
  EXPECT_EQ(this->format.max_value(), TypeParam::max_value);
  EXPECT_EQ(this->format.min_subnormal(), TypeParam::min_subnormal);
  EXPECT_EQ(this->format.max_exponent(), TypeParam::max_exponent);
  EXPECT_EQ(this->format.stored_bits(), TypeParam::bits);
  EXPECT_TRUE(this->format.is_in_float32());
}

TYPED_TEST(AnyCodecTest, DecodesEveryCode) {
  for (std::uint32_t code = 0; code < 256; ++code) {
    EXPECT_EQ(bits_of(decode(this->format, code)),
              bits_of(decode<TypeParam>(static_cast<std::uint8_t>(code))))
        << code;
  }
}

TYPED_TEST(AnyCodecTest, EncodesFloat32AndFloat64) {
  const auto nearest = AnyEncoder<std::uint32_t>::of(this->format, {});
  const auto wide = AnyEncoder<std::uint64_t>::of(this->format, {});
  const AnyRoundingOptions stochastic{AnyRounding::stochastic};
  const auto random = AnyEncoder<std::uint32_t>::of(this->format, stochastic);
  const auto wide_random = AnyEncoder<std::uint64_t>::of(this->format, stochastic);
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 4093) {
    const float value = float_of(static_cast<std::uint32_t>(bits));
    const std::uint32_t want = encode<TypeParam>(value);
    ASSERT_EQ(encode_any<float>(nearest, value, 0u), want) << show(value);
    if (std::isnan(value)) continue;
    ASSERT_EQ(encode_any<double>(wide, double{value}, std::uint64_t{0}), want) << show(value);
    const std::uint32_t word = static_cast<std::uint32_t>(bits * 2654435761u) >> 16;
    const std::uint32_t drawn = encode_stochastic_lanes<TypeParam>(value, word);
    ASSERT_EQ(encode_any<float>(random, value, word), drawn) << show(value) << ", " << word;
    ASSERT_EQ(encode_any<double>(wide_random, double{value}, std::uint64_t{word}), drawn)
        << show(value) << ", " << word;
  }
}

// What kernels store.
float with_one_nan_of(float value) { return with_one_nan(value); }
double with_one_nan_of(double value) {
  return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value;
}

template <class Word>
void expect_nearest(const AnyFormat& format, bool saturates, Word step) {
  using Float = typename MachineFloat<Word>::Float;
  const AnyRoundingOptions options{.saturates = saturates};
  if (!NearestEncoder<Word>::takes(format, options)) return;
  const auto nearest = NearestEncoder<Word>::of(format, options);
  const auto encoder = AnyEncoder<Word>::of(format, options);
  const auto decoder = AnyDecoder<Word>::of(format);
  const auto check = [&](Float value) {
    const Word want = encode_any<Float>(encoder, value, Word{0});
    ASSERT_EQ((encode_any<Float, Word>(nearest, value)), want)
        << value << ", E" << format.exponent_bits << "M" << format.mantissa_bits << ", "
        << format.is_signed << format.is_integer << static_cast<int>(format.specials);
    if (value != value) return;
    ASSERT_EQ(bits_of(with_one_nan_of((round_any<Float, Word>(nearest, value)))),
              bits_of(decode_any<Word>(decoder, want)))
        << value << ", E" << format.exponent_bits << "M" << format.mantissa_bits << ", "
        << format.is_signed << format.is_integer << static_cast<int>(format.specials);
  };
  for (std::uint32_t code = 0; code <= format.max_code(); code += format.max_code() / 300 + 1) {
    const Float low = decode(format, code);
    const Float place = static_cast<Float>(format.min_subnormal()) / 2;
    for (const Float value : {low, low + place, std::nextafter(low + place, Float{0}),
                              std::nextafter(low + place, Float{1e9})}) {
      check(value);
      check(-value);
    }
  }
  const Float most = static_cast<Float>(format.max_value());
  for (int i = -8; i <= 8; ++i) {
    check(most * (1 + static_cast<Float>(i) / 64));
    check(-most * (1 + static_cast<Float>(i) / 64));
  }
  Word bits = 0;
  for (int i = 0; i < 3000; ++i, bits += step) check(__builtin_bit_cast(Float, bits));
}

TEST(NearestEncoder, IsTheOtherOne) {
  const auto expect = [](const AnyFormat& format) {
    if (!format.is_in_float32() || format.width() > 24) return;
    for (const bool saturates : {true, false}) {
      expect_nearest<std::uint32_t>(format, saturates, 1431655u);
      expect_nearest<std::uint64_t>(format, saturates, 6148914691236517u);
    }
  };
  for (const bool is_signed : {true, false}) {
    for (int bits = 2; bits <= 16; ++bits) expect(AnyFormat::integer(bits, is_signed));
    for (int e = 0; e <= 8; ++e) {
      for (int m = 0; m <= 13; ++m) {
        for (const Specials specials : {Specials::none, Specials::nan_only, Specials::ieee}) {
          expect({e, m, is_signed, false, specials});
        }
      }
    }
  }
}

TEST(BitRounder, IsTheOtherOne) {
  for (int m = 1; m < 23; ++m) {
    for (const bool is_signed : {true, false}) {
      for (const bool saturates : {true, false}) {
        const AnyFormat format{8, m, is_signed, false, Specials::ieee};
        const AnyRoundingOptions options{.saturates = saturates};
        ASSERT_TRUE(BitRounder::takes(format, options));
        const BitRounder rounder = BitRounder::of(format, options);
        for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 65521) {
          const float value = float_of(static_cast<std::uint32_t>(bits));
          if (std::isnan(value)) continue;
          ASSERT_EQ(bits_of(round_any<float>(rounder, value)),
                    bits_of(decode(format, encode(format, options, value))))
              << show(value) << ", " << m << ", " << is_signed << saturates;
        }
      }
    }
  }
}

// The values of codes in order are those that neighbours round to.
TYPED_TEST(AnyCodecTest, RoundingsLieOnTheirSides) {
  for (std::uint32_t code = 0; code < this->format.max_code(); ++code) {
    const float low = decode(this->format, code), high = decode(this->format, code + 1);
    const float middle = (low + high) / 2, above = std::nextafter(middle, high);
    for (const float sign : {1.0f, -1.0f}) {
      const auto rounded = [&](float value, AnyRounding rounding) {
        return decode(this->format, encode(this->format, {rounding}, sign * value));
      };
      EXPECT_EQ(rounded(above, AnyRounding::toward_zero), sign * low);
      EXPECT_EQ(rounded(middle, AnyRounding::nearest_away), sign * high);
      EXPECT_EQ(rounded(above, AnyRounding::nearest), sign * high);
      EXPECT_EQ(rounded(middle, AnyRounding::up), sign > 0 ? high : -low);
      EXPECT_EQ(rounded(middle, AnyRounding::down), sign > 0 ? low : -high);
      EXPECT_EQ(rounded(low, AnyRounding::up), sign * low);
    }
  }
}

// f + w * 2^(32-r) + 2^(31-r) >= 2^32, with f the fraction of the step.
TEST(AnyCodec, FewerRandomBits) {
  const AnyFormat e2m1 = AnyFormat::of<E2M1>();
  for (int r = 1; r <= 16; ++r) {
    for (std::uint32_t word = 0; word < 65536; word += 257) {
      for (const double fraction : {0.0, 0.125, 0.3, 0.5, 0.75, 0.9999}) {
        const float value = static_cast<float>(2.0 + fraction);
        const double f = std::floor((static_cast<double>(value) - 2.0) * 0x1p32);
        const double top = word >> (16 - r);
        const bool up = f + top * std::ldexp(1.0, 32 - r) + std::ldexp(1.0, 31 - r) >= 0x1p32;
        EXPECT_EQ(encode(e2m1, {AnyRounding::stochastic, r}, value, word), up ? 5u : 4u)
            << r << ", " << word << ", " << fraction;
      }
    }
  }
}

TEST(AnyCodec, BeyondTheLargestValue) {
  constexpr AnyFormat e5m2 = AnyFormat::of<E5M2>(), e4m3 = AnyFormat::of<E4M3>();
  const AnyRoundingOptions open{.saturates = false};
  const AnyRoundingOptions inward{.rounding = AnyRounding::toward_zero, .saturates = false};
  const float infinity = float_of(float32::infinity_bits);
  EXPECT_EQ(encode(e5m2, open, 1e9f), 0x7Cu);
  EXPECT_EQ(encode(e5m2, open, -infinity), 0xFCu);
  EXPECT_EQ(encode(e5m2, inward, 1e9f), 0x7Bu);
  EXPECT_EQ(encode(e5m2, inward, infinity), 0x7Cu);
  EXPECT_EQ(encode(e4m3, open, 1e9f), 0x7Fu);
  EXPECT_EQ(encode(e4m3, open, 463.0f), 0x7Eu);
  EXPECT_EQ(encode(AnyFormat::of<E2M1>(), open, 1e9f), 7u);
}

TEST(AnyCodec, WithoutSubnormalsOrSign) {
  constexpr AnyFormat e4m3 = AnyFormat::of<E4M3>();
  const AnyRoundingOptions flushes{.subnormals = false};
  EXPECT_EQ(encode(e4m3, flushes, 0x1.cp-7f), 0u);
  EXPECT_EQ(encode(e4m3, flushes, -0x1.cp-7f), 0x80u);
  EXPECT_EQ(encode(e4m3, flushes, 0x1.fcp-7f), 8u);  // rounds to the smallest normal
  constexpr AnyFormat unsigned_format{4, 3, false, false, Specials::nan_only};
  EXPECT_EQ(encode(unsigned_format, {}, -1.0f), 0u);
  EXPECT_EQ(encode(unsigned_format, {}, 1.0f), 0x38u);
  EXPECT_EQ(encode(AnyFormat::integer(4, false), {}, 1.5f), 12u);
  EXPECT_EQ(encode(AnyFormat::integer(2), {}, -0.6f), 3u);
}

template <class S>
void expect_compiled_scales() {
  constexpr AnyScheme any = AnyScheme::of(S::id);
  for (const ScaleRule rule : all_scale_rules) {
    const auto scaler =
        AnyScaler::of(any.element, any.scale, {.rule = rule}, any.has_tensor_scale());
    for (std::uint32_t amax = 0; amax <= float32::infinity_bits; amax += 32771) {
      const float of_tensor = float_of(amax * 7919u % 0x7F000000u);
      const TensorScale tensor = TensorScale::from_amax(of_tensor);
      const BlockScale want = block_scale<S>(amax, rule, tensor);
      const TensorScale own =
          any.has_tensor_scale() ? any_tensor_scale(any.largest(), of_tensor) : TensorScale{};
      if (any.has_tensor_scale()) {
        ASSERT_EQ(bits_of(own.stored), bits_of(tensor.stored));
      }
      const AnyBlockScale got = scaler.of_amax(amax, own);
      ASSERT_EQ(got.code, want.byte) << S::name << ", " << name_of(rule) << ", " << amax;
      if (!float32::is_finite(amax)) continue;
      ASSERT_EQ(bits_of(got.multiplier), bits_of(want.multiplier)) << S::name << ", " << amax;
    }
  }
}

TEST(AnyScale, IsThatOfCompiledSchemes) {
#define MXKERN_EXPECT(Type) expect_compiled_scales<Type>();
  MXKERN_FOR_EACH_SCHEME(MXKERN_EXPECT)
#undef MXKERN_EXPECT
}

// 1.25 * 6: what lies at most so far beyond the largest value does not move the scale.
TEST(AnyScale, Threshold) {
  const AnyFormat e2m1 = AnyFormat::of<E2M1>();
  const auto scaler = AnyScaler::of(e2m1, {}, {.threshold = 1.25f}, false);
  EXPECT_EQ(scaler.of_amax(bits_of(7.5f), {}).code, 127u);
  EXPECT_EQ(scaler.of_amax(bits_of(7.50001f), {}).code, 128u);
  EXPECT_EQ(scaler.of_amax(bits_of(3.75f), {}).code, 126u);
}

TEST(AnyScale, PowersInFewBits) {
  const AnyScaleFormat e4m0{AnyScaleKind::power, 4, 0};
  const auto scaler = AnyScaler::of(AnyFormat::of<E2M1>(), e4m0, {}, false);
  EXPECT_EQ(scaler.of_amax(bits_of(6.0f), {}).code, 7u);
  EXPECT_EQ(scaler.of_amax(bits_of(1e-9f), {}).code, 0u);
  EXPECT_EQ(scaler.of_amax(bits_of(1e9f), {}).code, 14u);
  EXPECT_EQ(scaler.of_amax(float32::infinity_bits, {}).code, 15u);
  EXPECT_EQ(e4m0.decode(14), 128.0f);
}

}  // namespace
}  // namespace mxkern
