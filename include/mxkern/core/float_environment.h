// mxkern/core/float_environment.h: IEEE arithmetic for the duration of an operation on the CPU.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mxkern {

// On x86-64: round to nearest even and subnormals kept, whatever the calling thread has set
// (frameworks offer "flush denormals to zero"); the caller's settings come back at the end of the
// scope. Elsewhere the calling thread's settings count, which are these unless it changed them.
class FloatEnvironment {
 public:
#if defined(__x86_64__)
  FloatEnvironment() : saved_(_mm_getcsr()) { _mm_setcsr(0x1F80); }
  ~FloatEnvironment() { _mm_setcsr(saved_); }
#else
  FloatEnvironment() = default;
#endif
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

#if defined(__x86_64__)
 private:
  unsigned saved_;
#endif
};

}  // namespace mxkern
