// mxkern/core/float_environment.h: IEEE arithmetic for the duration of an operation on the CPU.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace mxkern {

// On x86-64 and AArch64: round to nearest even and subnormals kept, whatever the calling thread has
// set (frameworks offer "flush denormals to zero"); the caller's settings come back at the end of
// the scope. Elsewhere the calling thread's settings count, which are these unless it changed them.
class FloatEnvironment {
 public:
  // The processor's register of modes: MXCSR, or FPCR.
  using Modes = std::uint64_t;
#if defined(__x86_64__)
  static constexpr Modes standard = 0x1F80;  // no exception is a trap
  static Modes modes() { return _mm_getcsr(); }
  static void set(Modes modes) { _mm_setcsr(static_cast<unsigned>(modes)); }
#elif defined(__aarch64__)
  static constexpr Modes standard = 0;
  static Modes modes() {
    Modes found;
    asm volatile("mrs %0, fpcr" : "=r"(found)::"memory");
    return found;
  }
  static void set(Modes modes) { asm volatile("msr fpcr, %0" ::"r"(modes) : "memory"); }
#else
  static constexpr Modes standard = 0;
  static Modes modes() { return standard; }
  static void set(Modes) {}
#endif

  FloatEnvironment() : saved_(modes()) { set(standard); }
  ~FloatEnvironment() { set(saved_); }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  Modes saved_;
};

}  // namespace mxkern
