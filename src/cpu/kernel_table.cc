// cpu/kernel_table.cc: the tables of the instruction sets that are compiled in.
#include "cpu/kernel_table.h"

namespace mxkern::cpu {

extern const KernelTable kernels_baseline, kernels_avx2, kernels_avx512;

const KernelTable& kernels_for(InstructionSet set) {
  switch (set) {
#if defined(MXKERN_HAS_avx512)
    case InstructionSet::avx512: return kernels_avx512;
#endif
#if defined(MXKERN_HAS_avx2)
    case InstructionSet::avx2: return kernels_avx2;
#endif
    default: return kernels_baseline;
  }
}

const KernelTable& best_kernels() {
  static const KernelTable& best = kernels_for(best_instruction_set());
  return best;
}

HadamardSigns::HadamardSigns(int group, SignMask signs) : size(group) {
  for (int i = 0; i < size; ++i) bits[i] = signs.bit(i) << 31;
}

}  // namespace mxkern::cpu
