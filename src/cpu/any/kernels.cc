// cpu/any/kernels.cc: the kernels of the instruction sets that are compiled in, for formats that
// are known at run time.
#include "cpu/any/kernels.h"

namespace mxkern::cpu {

extern const AnyKernels any_kernels_baseline;
#if defined(MXKERN_HAS_avx2)
extern const AnyKernels any_kernels_avx2;
#endif
#if defined(MXKERN_HAS_avx512)
extern const AnyKernels any_kernels_avx512;
#endif

const AnyKernels& any_kernels_for(InstructionSet set) {
  switch (set) {
#if defined(MXKERN_HAS_avx512)
    case InstructionSet::avx512: return any_kernels_avx512;
#endif
#if defined(MXKERN_HAS_avx2)
    case InstructionSet::avx2: return any_kernels_avx2;
#endif
    default: return any_kernels_baseline;
  }
}

const AnyKernels& best_any_kernels() {
  static const AnyKernels& best = any_kernels_for(best_instruction_set());
  return best;
}

}  // namespace mxkern::cpu
