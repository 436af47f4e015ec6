// tests/phantom/few.h: schemes that nobody has, for the library's kernels: a format as wide as E2M1
// that is another one, and long blocks.
#pragma once

namespace mxkern {

struct E3M0 : FloatFormat<3, 0, Specials::none> {
  static constexpr const char* name = "e3m0";
};

struct PhantomE3M0 : MxScheme<E3M0> {
  static constexpr Scheme id = static_cast<Scheme>(0);
  static constexpr const char* name = "e3m0 in 32";
};
struct PhantomLongBlocks : SchemeOf<E4M3, E8M0, 64, false> {
  static constexpr Scheme id = static_cast<Scheme>(1);
  static constexpr const char* name = "e4m3 in 64";
};

}  // namespace mxkern

#define MXKERN_ANY_SCHEME PhantomE3M0
#define MXKERN_FOR_EACH_SCHEME(apply) apply(PhantomE3M0) apply(PhantomLongBlocks)
