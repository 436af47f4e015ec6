// ops/info.cc: what this build of the library is, and what it found on this machine.
#include "mxkern/info.h"

#include "cpu/gemm/kernels.h"
#include "cpu/runtime/instruction_set.h"
#include "mxkern/core/error.h"
#include "cpu/runtime/thread_count.h"
#include "check/arguments.h"
#include "cuda/backend.h"

namespace mxkern {
namespace {

std::string describe_build() {
#if defined(__clang__)
  const std::string compiler = concatenate("clang ", __clang_major__, ".", __clang_minor__);
#elif defined(__GNUC__)
  const std::string compiler = concatenate("gcc ", __GNUC__, ".", __GNUC_MINOR__);
#else
  const std::string compiler = "unknown compiler";
#endif
#if defined(__x86_64__)
  const char* processor = "x86_64";
#elif defined(__aarch64__)
  const char* processor = "aarch64";
#else
  const char* processor = "unknown processor";
#endif
#if defined(NDEBUG)
  const char* kind = "release";
#else
  const char* kind = "debug";
#endif
  return concatenate(compiler, ", ", processor, ", ", kind);
}

const char* gemm_unit() {
  CpuGemmProblem large;
  large.m = large.n = large.k = 1024;
  const GemmUnit unit = plan_gemm_cpu(large, cpu::gemm_capabilities_of_machine()).unit;
  return takes_bfloat16(unit) ? name_of(unit) : "float32";
}

}  // namespace

const char* version() { return MXKERN_VERSION; }

bool built_with_cuda() { return has_cuda; }

Info info() {
  Info info{};
  info.version = version();
  info.build = describe_build();
  info.instruction_set = cpu::name_of(cpu::best_instruction_set());
  info.gemm_unit = gemm_unit();
  const ThreadCount count = thread_count();
  info.threads = count.threads;
  info.threads_from = count.from;
  info.built_with_cuda = built_with_cuda();
  info.blackwell = MXKERN_CUTLASS_STATUS;
#if defined(MXKERN_HAS_CUDA)
  info.cuda = cuda::describe_runtime();
  info.devices = cuda::describe_devices();
#else
  info.cuda = MXKERN_CUDA_STATUS;
#endif
  return info;
}

}  // namespace mxkern
