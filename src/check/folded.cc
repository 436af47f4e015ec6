// check/folded.cc: the checks of products whose precision is folded.
#include "check/folded.h"

#include "mxkern/core/error.h"
#include "plan/core_rows.h"
#include "plan/words.h"

namespace mxkern {
namespace {

void check_can_fold(const char* function, const char* argument, const PlannedOperand& operand,
                    const char* way_out) {
  check(can_fold(operand), function, ": precision is folded, but ", argument, " is ",
        kind_of(operand),
        "; expected mxfp8, mxfp6 or mxfp4, whose block scales fit into 8-bit floats; ", way_out);
}

}  // namespace

bool can_fold(const PlannedOperand& operand) {
  return !operand.is_plain && cuda::fold_facts(operand.scheme).can_fold;
}

void check_folded(const char* function, const PlannedOperand& a, const PlannedOperand& b,
                  const CudaGemmCapabilities& capabilities, const char* way_out) {
  check_can_fold(function, "a", a, way_out);
  check_can_fold(function, "b", b, way_out);
  check<Unsupported>(capabilities.is_hopper(), function,
                     ": precision is folded, which is for the FP8 tensor cores of Hopper (compute "
                     "capability 9.0); this device has ",
                     capabilities.major, ".", capabilities.minor,
                     capabilities.major != 9           ? ""
                     : capabilities.has_hopper_kernels ? ", and one multiprocessor"
                                                       : ", and this build no code for 9.0a",
                     "; ", way_out);
}

}  // namespace mxkern
