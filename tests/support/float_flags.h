// tests/support/float_flags.h: a caller whose processor flushes subnormals to zero.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mxkern::test {

// Flushes subnormal results and operands, and rounds toward zero, for the duration of a scope.
class FlushedSubnormals {
 public:
#if defined(__x86_64__)
  FlushedSubnormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ | flags); }
  ~FlushedSubnormals() { _mm_setcsr(saved_); }
  bool are_still_set() const { return (_mm_getcsr() & flags) == flags; }

 private:
  static constexpr unsigned flags = 0x8000u | 0x0040u | 0x6000u;
  unsigned saved_;
#else
  bool are_still_set() const { return true; }
#endif
};

}  // namespace mxkern::test
