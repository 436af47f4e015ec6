// tests/numerics/codec_cuda_test.cc: element and E8M0 codes against the host conversions of CUDA's
// own headers, where the build found them.
#include <gtest/gtest.h>

#if __has_include(<cuda_fp4.h>)
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>
#define MXKERN_TEST_HAS_CUDA_HEADERS 1
#endif

#include <cmath>

#include "mxkern/numerics/codec.h"
#include "mxkern/numerics/scale_rule.h"
#include "tests/support/format_list.h"
#include "tests/support/random_bits.h"
#include "tests/support/show.h"

namespace mxkern {
namespace {

#if defined(MXKERN_TEST_HAS_CUDA_HEADERS)

using test::show;
using test::show_code;

// CUDA's conversion to each format, and its code of a NaN where that is not ours: the formats
// without NaN turn it into their largest value there, and into a poisoned block's 0 here.
template <class Format>
struct Cuda;
template <>
struct Cuda<E4M3> {
  static std::uint8_t encode(float x) {
    return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
  }
  static constexpr std::uint8_t nan_code = E4M3::poison_code;
  static float decode(std::uint8_t code) {
    return __half2float(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3));
  }
};
template <>
struct Cuda<E5M2> {
  static std::uint8_t encode(float x) {
    return __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E5M2);
  }
  static constexpr std::uint8_t nan_code = E5M2::poison_code;
  static float decode(std::uint8_t code) {
    return __half2float(__nv_cvt_fp8_to_halfraw(code, __NV_E5M2));
  }
};
template <>
struct Cuda<E3M2> {
  static std::uint8_t encode(float x) {
    return __nv_cvt_float_to_fp6(x, __NV_E3M2, cudaRoundNearest);
  }
  static constexpr std::uint8_t nan_code = E3M2::max_code;
  static float decode(std::uint8_t code) {
    return __half2float(__nv_cvt_fp6_to_halfraw(code, __NV_E3M2));
  }
};
template <>
struct Cuda<E2M3> {
  static std::uint8_t encode(float x) {
    return __nv_cvt_float_to_fp6(x, __NV_E2M3, cudaRoundNearest);
  }
  static constexpr std::uint8_t nan_code = E2M3::max_code;
  static float decode(std::uint8_t code) {
    return __half2float(__nv_cvt_fp6_to_halfraw(code, __NV_E2M3));
  }
};
template <>
struct Cuda<E2M1> {
  static std::uint8_t encode(float x) {
    return __nv_cvt_float_to_fp4(x, __NV_E2M1, cudaRoundNearest);
  }
  static constexpr std::uint8_t nan_code = E2M1::max_code;
  static float decode(std::uint8_t code) {
    return __half2float(__nv_cvt_fp4_to_halfraw(code, __NV_E2M1));
  }
};

template <class Format>
class CudaCodecTest : public ::testing::Test {
 protected:
  static void expect_equal(std::uint32_t bits) {
    const float value = float_of(bits);
    if (std::isnan(value)) return;
    const std::uint8_t got = encode<Format>(value);
    const std::uint8_t want = Cuda<Format>::encode(value);
    if (got != want) {
      FAIL() << Format::name << " of " << show(value) << ": got " << show_code(got)
             << ", CUDA gives " << show_code(want);
    }
  }
};

// CUDA has no conversion to INT8 elements.
using CudaFormats = ::testing::Types<E4M3, E5M2, E3M2, E2M3, E2M1>;
TYPED_TEST_SUITE(CudaCodecTest, CudaFormats, test::NameOfType);

TYPED_TEST(CudaCodecTest, EncodesRandomPatternsAlike) {
  test::RandomBits random(6);
  const int low = TypeParam::min_exponent - TypeParam::mantissa_bits - 3;
  const int high = TypeParam::max_exponent + 2;
  for (int i = 0; i < 16'000'000 && !this->HasFatalFailure(); ++i) {
    this->expect_equal(i % 4 ? random.float_bits(low, high) : random.next());
  }
}

// The upper 16 bits of every float32, alone and with the bits below that could break a tie.
TYPED_TEST(CudaCodecTest, EncodesEveryUpperHalfAlike) {
  for (std::uint32_t upper = 0; upper < 65536 && !this->HasFatalFailure(); ++upper) {
    for (std::uint32_t lower : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu}) {
      this->expect_equal(upper << 16 | lower);
    }
  }
}

TYPED_TEST(CudaCodecTest, TreatsNanAsKnown) {
  for (std::uint32_t bits : {0x7FC00000u, 0x7FFFFFFFu, 0xFFC00000u, 0xFFFFFFFFu}) {
    EXPECT_EQ(Cuda<TypeParam>::encode(float_of(bits)), Cuda<TypeParam>::nan_code)
        << test::show_bits(bits);
    EXPECT_EQ(encode<TypeParam>(float_of(bits)), TypeParam::poison_code) << test::show_bits(bits);
  }
}

TYPED_TEST(CudaCodecTest, DecodesEveryCodeAlike) {
  for (int code = 0; code < 1 << TypeParam::bits; ++code) {
    const float got = decode<TypeParam>(static_cast<std::uint8_t>(code));
    const float want = Cuda<TypeParam>::decode(static_cast<std::uint8_t>(code));
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got)) << show_code(code) << ": got " << show(got);
    } else {
      EXPECT_EQ(bits_of(got), bits_of(want))
          << show_code(code) << ": got " << show(got) << ", CUDA gives " << show(want);
    }
  }
}

// The rule of rceil is what the conversion instruction does with amax / max.
TYPED_TEST(CudaCodecTest, RceilIsTheRoundUpConversion) {
  test::RandomBits random(7);
  const auto expect_byte = [](std::uint32_t amax) {
    const float ratio =
        float_of(amax) * static_cast<float>(1.0 / test::published<TypeParam>.largest);
    const int want = __nv_cvt_float_to_e8m0(ratio, __NV_SATFINITE, cudaRoundPosInf);
    const int got = e8m0_scale<TypeParam>(amax, ScaleRule::rceil);
    if (got != want) {
      FAIL() << TypeParam::name << " scale of " << show(float_of(amax)) << ": got " << got
             << ", CUDA gives " << want;
    }
  };
  for (int i = 0; i < 2'000'000 && !this->HasFatalFailure(); ++i) {
    const std::uint32_t amax = random.next() & float32::magnitude_mask;
    if (float32::is_finite(amax)) expect_byte(amax);
  }
  for (std::uint32_t amax = 0; amax < 1 << 20 && !this->HasFatalFailure(); ++amax) {
    expect_byte(amax * 64);  // subnormals, and up to 2^-119
    expect_byte(float32::largest_bits - amax * 64);
  }
}

TEST(CudaE8M0Test, DecodesEveryByteAlike) {
  for (int byte = 0; byte < 256; ++byte) {
    const float got = E8M0::decode(static_cast<std::uint8_t>(byte));
    const std::uint32_t want =
        std::uint32_t{__nv_cvt_e8m0_to_bf16raw(static_cast<std::uint8_t>(byte)).x} << 16;
    if (byte == E8M0::nan_byte) {
      EXPECT_TRUE(std::isnan(got) && std::isnan(float_of(want)));
    } else {
      EXPECT_EQ(bits_of(got), want) << byte << ": got " << show(got);
    }
  }
}

#else

TEST(CudaCodecTest, NeedsCudaHeaders) {
  GTEST_SKIP() << "cuda_fp4.h was not found when the tests were built; CUDA's host conversions are "
                  "not compared";
}

#endif

}  // namespace
}  // namespace mxkern
