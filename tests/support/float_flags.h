// tests/support/float_flags.h: a caller whose processor flushes subnormals to zero.
#pragma once

#include "mxkern/core/float_environment.h"

namespace mxkern::test {

// Flushes subnormal results and operands, and rounds toward zero, for the duration of a scope.
class FlushedSubnormals {
 public:
  FlushedSubnormals() : saved_(FloatEnvironment::modes()), set_(saved_ | flags) {
    FloatEnvironment::set(set_);
  }
  ~FlushedSubnormals() { FloatEnvironment::set(saved_); }
  bool are_still_set() const { return ((FloatEnvironment::modes() ^ set_) & modes) == 0; }

 private:
  // Of all processors: flushes, the mode to round in, and which exceptions are traps. On x86-64 the
  // register also says which exceptions there were.
#if defined(__x86_64__)
  static constexpr FloatEnvironment::Modes flags = 0x8000u | 0x0040u | 0x6000u, modes = 0xFFC0u;
#elif defined(__aarch64__)
  static constexpr FloatEnvironment::Modes flags = 1u << 24 | 3u << 22, modes = ~std::uint64_t{0};
#else
  static constexpr FloatEnvironment::Modes flags = 0, modes = 0;
#endif
  FloatEnvironment::Modes saved_, set_;
};

}  // namespace mxkern::test
