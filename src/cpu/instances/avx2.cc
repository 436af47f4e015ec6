// cpu/instances/avx2.cc: the kernels compiled for avx2.
#include "cpu/kernels/make_table.h"

namespace mxkern::cpu {

extern const KernelTable kernels_avx2;
constexpr KernelTable kernels_avx2 = make_table();

}  // namespace mxkern::cpu
