// cpu/runtime/instruction_set.cc: detection of instruction sets, once a process.
#include "cpu/runtime/instruction_set.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace mxkern::cpu {

const char* name_of(InstructionSet set) {
  switch (set) {
    case InstructionSet::baseline: return "baseline";
    case InstructionSet::avx2: return "avx2";
    case InstructionSet::avx512: return "avx512";
  }
  return "unknown";
}

#if defined(__x86_64__)

namespace {

// A name that not every compiler knows in __builtin_cpu_supports.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & (1u << 29)) != 0;
}

// What the processor has, whatever was compiled.
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c() &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

[[maybe_unused]] bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vbmi");
}

}  // namespace

#endif

bool is_available(InstructionSet set) {
  switch (set) {
    case InstructionSet::baseline: return true;
    case InstructionSet::avx2:
#if defined(MXKERN_HAS_avx2)
      return has_avx2();
#else
      return false;
#endif
    case InstructionSet::avx512:
#if defined(MXKERN_HAS_avx512)
      return has_avx512();
#else
      return false;
#endif
  }
  return false;
}

InstructionSet best_instruction_set() {
  static const InstructionSet best = is_available(InstructionSet::avx512) ? InstructionSet::avx512
                                     : is_available(InstructionSet::avx2)
                                         ? InstructionSet::avx2
                                         : InstructionSet::baseline;
  return best;
}

#if defined(__x86_64__)

bool has_avx512_bf16() {
  static const bool has = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return is_available(InstructionSet::avx512) &&
           __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax & (1u << 5)) != 0;
  }();
  return has;
}

bool has_amx_bf16() {
  static const bool has = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    constexpr unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24;
    if (!has_avx512_bf16() || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return false;
    if ((edx & amx_bf16) == 0 || (edx & amx_tile) == 0) return false;
    // Linux hands out the tile state only to processes that ask (ARCH_REQ_XCOMP_PERM, XTILEDATA).
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
  }();
  return has;
}

#else

bool has_avx512_bf16() { return false; }
bool has_amx_bf16() { return false; }

#endif

}  // namespace mxkern::cpu
