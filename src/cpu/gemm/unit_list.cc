// cpu/gemm/unit_list.cc: the units of this build, and which of them this machine runs.
#include "cpu/gemm/instances.h"
#include "cpu/gemm/kernels.h"
#include "cpu/runtime/instruction_set.h"
#include "mxkern/threads.h"

namespace mxkern::cpu {

const GemmKernels& gemm_kernels(GemmUnit unit) {
  switch (unit) {
#if defined(MXKERN_HAS_avx2)
    case GemmUnit::avx2: return gemm_kernels_avx2;
    case GemmUnit::avx2_few_rows: return gemm_kernels_avx2_few_rows;
    case GemmUnit::avx2_panels: return gemm_kernels_avx2_panels;
#endif
#if defined(MXKERN_HAS_avx512)
    case GemmUnit::avx512: return gemm_kernels_avx512;
    case GemmUnit::avx512_few_rows: return gemm_kernels_avx512_few_rows;
    case GemmUnit::avx512_panels: return gemm_kernels_avx512_panels;
#endif
#if defined(MXKERN_HAS_avx512_bf16)
    case GemmUnit::avx512_bf16: return gemm_kernels_avx512_bf16;
    case GemmUnit::avx512_bf16_panels: return gemm_kernels_avx512_bf16_panels;
#endif
#if defined(MXKERN_HAS_amx_bf16)
    case GemmUnit::amx_bf16: return gemm_kernels_amx_bf16;
#endif
    case GemmUnit::baseline_few_rows: return gemm_kernels_baseline_few_rows;
    default: return gemm_kernels_baseline;
  }
}

CpuGemmCapabilities gemm_capabilities_of_machine() {
  static const CpuGemmCapabilities capabilities = [] {
    CpuGemmCapabilities found;
    const auto set = [&found](GemmUnit unit, bool runs) {
      found.has[static_cast<int>(unit)] = runs && gemm_kernels(unit).unit == unit;
    };
    set(GemmUnit::baseline, true);
    set(GemmUnit::avx2, is_available(InstructionSet::avx2));
    set(GemmUnit::avx512, is_available(InstructionSet::avx512));
    set(GemmUnit::avx512_bf16, has_avx512_bf16());
    set(GemmUnit::amx_bf16, has_amx_bf16());
    set(GemmUnit::baseline_few_rows, true);
    set(GemmUnit::avx2_few_rows, is_available(InstructionSet::avx2));
    set(GemmUnit::avx512_few_rows, is_available(InstructionSet::avx512));
    set(GemmUnit::avx2_panels, is_available(InstructionSet::avx2));
    set(GemmUnit::avx512_panels, is_available(InstructionSet::avx512));
    set(GemmUnit::avx512_bf16_panels, has_avx512_bf16());
#if defined(__x86_64__)
    found.has_fast_bf16_dot = __builtin_cpu_is("intel") == 0;
#endif
    return found;
  }();
  return capabilities;
}

CpuGemmCapabilities gemm_capabilities() {
  static const int threads = num_threads();
  CpuGemmCapabilities capabilities = gemm_capabilities_of_machine();
  capabilities.threads = threads;
  return capabilities;
}

}  // namespace mxkern::cpu
