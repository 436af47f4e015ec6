// cpu/instances/baseline.cc: the kernels compiled for baseline.
#include "cpu/kernels/make_table.h"

namespace mxkern::cpu {

extern const KernelTable kernels_baseline;
constexpr KernelTable kernels_baseline = make_table();

}  // namespace mxkern::cpu
