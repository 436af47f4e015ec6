// mxkern/info.h: what this build of the library is, and what it found on this machine.
#pragma once

#include <string>
#include <vector>

#include "mxkern/core/platform.h"

namespace mxkern {

struct Info {
  std::string version;          // of the library
  std::string build;            // compiler and options
  std::string instruction_set;  // the one in use: "baseline", "avx2", "avx512"
  std::string gemm_unit;        // what multiplies on the CPU: "float32", "avx512_bf16", "amx_bf16"
  int threads;                  // that an operation may use: num_threads()
  std::string threads_from;     // what says so, in words
  bool built_with_cuda;
  std::string cuda;                  // runtime version, or why there is none
  std::string blackwell;             // its block-scaled kernels, never executed, or why none
  std::vector<std::string> devices;  // CUDA devices, one description each
};

// Looks for CUDA devices, after which processes that are forked cannot use them.
MXKERN_API Info info();

// The same of the build alone: nothing on the machine is looked at.
MXKERN_API const char* version();
MXKERN_API bool built_with_cuda();

}  // namespace mxkern
