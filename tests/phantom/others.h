// tests/phantom/others.h: more schemes that nobody has: a format of a width that is not packed,
// short blocks under powers of two, and scales that are floats without a tensor scale.
#pragma once

namespace mxkern {

struct E2M2 : FloatFormat<2, 2, Specials::none> {
  static constexpr const char* name = "e2m2";
};

// 8 bits without a sign, of which all ones are NaN.
struct UE5M3 {
  static constexpr const char* name = "ue5m3";
  static constexpr bool is_power_of_two = false;
  using Element = FloatFormat<5, 3, Specials::nan_only>;
  static constexpr std::uint8_t nan_byte = 0xFF;
  static constexpr std::uint8_t max_byte = Element::max_code;

  MXKERN_HOST_DEVICE static constexpr float decode(std::uint8_t byte) {
    return mxkern::decode<Element>(byte);
  }
};
static_assert(UE5M3::decode(UE5M3::max_byte) == 114688.0f && UE5M3::decode(1) == 0x1p-17f);

struct PhantomFiveBits : MxScheme<E2M2> {
  static constexpr Scheme id = static_cast<Scheme>(0);
  static constexpr const char* name = "e2m2 in 32";
};
struct PhantomShortBlocks : SchemeOf<E2M1, E8M0, 16, false> {
  static constexpr Scheme id = static_cast<Scheme>(1);
  static constexpr const char* name = "e2m1 in 16";
};
struct PhantomFloatScales : SchemeOf<E2M1, UE5M3, 16, false> {
  static constexpr Scheme id = static_cast<Scheme>(2);
  static constexpr const char* name = "e2m1 under ue5m3";
};
struct PhantomWideFloatScales : SchemeOf<E4M3, UE5M3, 32, false> {
  static constexpr Scheme id = static_cast<Scheme>(3);
  static constexpr const char* name = "e4m3 under ue5m3";
};

}  // namespace mxkern

#define MXKERN_ANY_SCHEME PhantomFiveBits
#define MXKERN_FOR_EACH_SCHEME(apply)                                        \
  apply(PhantomFiveBits) apply(PhantomShortBlocks) apply(PhantomFloatScales) \
      apply(PhantomWideFloatScales)
