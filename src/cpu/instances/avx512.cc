// cpu/instances/avx512.cc: the kernels compiled for avx512.
#include "cpu/kernels/make_table.h"

namespace mxkern::cpu {

extern const KernelTable kernels_avx512;
constexpr KernelTable kernels_avx512 = make_table();

}  // namespace mxkern::cpu
