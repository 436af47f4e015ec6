// tests/numerics/any_narrow_test.cc: codes of at most 8 bits, four at a time, are those of
// any_codec.h: from all 16-bit floats times multipliers of every kind.
#include "mxkern/numerics/any_narrow.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "mxkern/core/dtype.h"
#include "tests/support/show.h"

namespace mxkern {
namespace {

using test::show;

template <NarrowKind kind>
class Pair {
 public:
  Pair(const AnyFormat& format, bool saturates)
      : format_(format),
        options_{.saturates = saturates},
        encoder_(AnyEncoder<std::uint32_t>::of(format, options_)),
        decoder_(AnyDecoder<std::uint32_t>::of(format)),
        narrow_(NarrowEncoder::of(format)) {}

  void expect_same(const std::array<float, 4>& values) const {
    std::uint32_t want = 0, signs = 0;
    for (int i = 0; i < 4; ++i) {
      const auto at = static_cast<std::size_t>(i);
      want |= encode_any<float>(encoder_, values[at], 0u) << (8 * i);
      // What is below the highest bit does not count.
      signs |= (bits_of(values[at]) >> 24) << (8 * i);
    }
    ASSERT_EQ(narrow_codes<kind>(narrow_, values.data(), signs), want) << named(values);
    for (int i = 0; i < 4; ++i) {
      const float value = values[static_cast<std::size_t>(i)];
      const std::uint32_t code = want >> (8 * i) & 0xFFu;
      ASSERT_EQ(bits_of(narrow_rounded<kind>(narrow_, value)),
                bits_of(decode_any<std::uint32_t>(decoder_, code)))
          << show(value) << ", " << named(values);
    }
  }

 private:
  std::string named(const std::array<float, 4>& values) const {
    return "E" + std::to_string(format_.exponent_bits) + "M" +
           std::to_string(format_.mantissa_bits) + (format_.is_integer ? " integer" : "") +
           (format_.is_signed ? "" : " unsigned") + " of " + show(values[0]) + ", " +
           show(values[1]) + ", " + show(values[2]) + ", " + show(values[3]);
  }

  AnyFormat format_;
  AnyRoundingOptions options_;
  AnyEncoder<std::uint32_t> encoder_;
  AnyDecoder<std::uint32_t> decoder_;
  NarrowEncoder narrow_;
};

// Powers of two, subnormal ones, and significands of all bits.
constexpr float multipliers[] = {1.0f,          0x1p-3f,        0x1p9f,        0x1p-127f,
                                 0x1p127f,      0x1.8p-9f,      0x1.99999ap0f, 0x1.24924ap-2f,
                                 0x1.FFFFFEp3f, 0x1.FFFFFEp127f};

template <NarrowKind kind, class T>
void expect_all_of(const Pair<kind>& pair) {
  for (const float multiplier : multipliers) {
    std::array<float, 4> values = {};
    for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
      const float value = to_float(T{static_cast<std::uint16_t>(bits * 40503u)}) * multiplier;
      values[bits % 4] = std::isnan(value) ? 0.0f : value;
      if (bits % 4 == 3) pair.expect_same(values);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// Ties and what lies beside them, in float32.
template <NarrowKind kind>
void expect_ties(const Pair<kind>& pair, const AnyFormat& format) {
  for (std::uint32_t code = 0; code <= format.max_code(); ++code) {
    const float low = decode(format, code);
    const float high = code < format.max_code() ? decode(format, code + 1) : 1.25f * low;
    const float middle = low + (high - low) / 2;
    const float below = std::nextafter(middle, 0.0f), above = std::nextafter(middle, 1e9f);
    pair.expect_same({low, middle, below, above});
    pair.expect_same({-above, -low, -middle, -below});
    if (::testing::Test::HasFatalFailure()) return;
  }
}

template <NarrowKind kind>
void expect_format(const AnyFormat& format, bool saturates) {
  const Pair<kind> pair(format, saturates);
  expect_ties(pair, format);
  if (!::testing::Test::HasFatalFailure()) expect_all_of<kind, bfloat16>(pair);
  if (!::testing::Test::HasFatalFailure()) expect_all_of<kind, float16>(pair);
}

int formats_seen = 0;

void expect_if_taken(const AnyFormat& format) {
  if (!format.is_in_float32()) return;
  for (const bool saturates : {true, false}) {
    if (!NarrowEncoder::takes(format, {.saturates = saturates})) continue;
    ++formats_seen;
    if (NarrowEncoder::of(format).kind == NarrowKind::fixed) {
      expect_format<NarrowKind::fixed>(format, saturates);
    } else {
      expect_format<NarrowKind::floating>(format, saturates);
    }
  }
}

TEST(NarrowEncoder, IsTheLongWay) {
  for (const bool is_signed : {true, false}) {
    for (int bits = 2; bits <= 8; ++bits) expect_if_taken(AnyFormat::integer(bits, is_signed));
    for (int e = 0; e <= 7; ++e) {
      for (int m = 0; m <= 8; ++m) {
        for (const Specials specials : {Specials::none, Specials::nan_only, Specials::ieee}) {
          expect_if_taken({e, m, is_signed, false, specials});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
  EXPECT_GT(formats_seen, 100);
}

TEST(NarrowEncoder, LeavesTheRest) {
  const AnyFormat e3m4{3, 4};
  EXPECT_TRUE(NarrowEncoder::takes(e3m4, {}));
  EXPECT_FALSE(NarrowEncoder::takes(e3m4, {AnyRounding::stochastic}));
  EXPECT_FALSE(NarrowEncoder::takes(e3m4, {.subnormals = false}));
  EXPECT_FALSE(NarrowEncoder::takes(AnyFormat::of<E4M3>(), {.saturates = false}));
  EXPECT_FALSE(NarrowEncoder::takes({5, 10}, {}));
  EXPECT_FALSE(NarrowEncoder::takes({4, 3, false}, {}));
}

TEST(NarrowPacked, IsAStreamOfBits) {
  for (const int bits : {1, 2, 4, 6, 8}) {
    for (std::uint32_t seed = 1; seed < 2000; ++seed) {
      const std::uint32_t bytes = seed * 2654435761u & ((1u << bits) - 1u) * NarrowEncoder::four;
      std::uint32_t want = 0;
      for (int i = 0; i < 4; ++i) want |= (bytes >> (8 * i) & 0xFFu) << (bits * i);
      ASSERT_EQ(narrow_packed(bytes, bits), want) << bits << ", " << bytes;
    }
  }
}

}  // namespace
}  // namespace mxkern
