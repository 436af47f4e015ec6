// tests/tensor/lifted_scales_test.cc: scales with an exponent of five bits keep their values.
#include "mxkern/tensor/lifted_scales.h"

#include <gtest/gtest.h>

#include "mxkern/core/dtype.h"

namespace mxkern {
namespace {

TEST(LiftedScales, KeepTheirValues) {
  for (int code = 0; code < UE4M3::nan_byte; ++code) {
    const auto scale = static_cast<std::uint8_t>(code);
    EXPECT_EQ(LiftedScales::decode(LiftedScales::lift(scale)), UE4M3::decode(scale)) << code;
  }
}

// What the kernels do: fields of a bfloat16 or a half, and an addition to its exponent.
TEST(LiftedScales, AreFieldsOfFloats) {
  for (int code = 1; code < UE4M3::nan_byte; ++code) {
    const auto scale = static_cast<std::uint8_t>(code);
    const std::uint32_t lifted = LiftedScales::lift(scale);
    const auto wide = static_cast<std::uint16_t>((lifted << 4) + ((127 - 21) << 7));
    EXPECT_EQ(to_float(bfloat16{wide}), UE4M3::decode(scale)) << code;
    const auto half = static_cast<std::uint16_t>(lifted << 7);
    EXPECT_EQ(to_float(float16{half}), 64.0f * UE4M3::decode(scale)) << code;
  }
}

template <class S>
void expect_reordered() {
  for (int byte = 0; byte < S::ScaleFormat::nan_byte; ++byte) {
    const auto scale = static_cast<std::uint8_t>(byte);
    std::uint8_t stored = scale;
    if constexpr (S::has_tensor_scale) stored = LiftedScales::lift(scale);
    EXPECT_EQ(decode_reordered_scale<S>(stored), S::ScaleFormat::decode(scale)) << S::name << byte;
  }
}

TEST(LiftedScales, ReorderedScalesOfEverySchemeKeepTheirValues) {
#define MXKERN_EXPECT(Type) expect_reordered<Type>();
  MXKERN_FOR_EACH_SCHEME(MXKERN_EXPECT)
#undef MXKERN_EXPECT
}

}  // namespace
}  // namespace mxkern
