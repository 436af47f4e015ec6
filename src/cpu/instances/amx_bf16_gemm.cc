// cpu/instances/amx_bf16_gemm.cc: the matrix product in AMX tiles.
#include "cpu/gemm/instances.h"
#include "cpu/gemm/multiply_amx_bf16.h"

namespace mxkern::cpu {

const GemmKernels gemm_kernels_amx_bf16 = {GemmUnit::amx_bf16, bf16::row_shifts,   bf16::pack_left,
                                           bf16::pack_right,   enter_amx,          leave_amx,
                                           multiply_amx_bf16,  bf16::are_at_least, bf16::finish};

}  // namespace mxkern::cpu
