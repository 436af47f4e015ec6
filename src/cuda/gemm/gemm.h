// cuda/gemm/gemm.h: the matrix product on a CUDA device; arguments are checked already.
#pragma once

#include "mxkern/gemm.h"
#include "plan/gemm_cuda.h"

namespace mxkern::cuda {

// What the device and this build can do. Throws Unsupported where there is no such device.
CudaGemmCapabilities gemm_capabilities(const char* function, Device device);

// By a plan of the problem that these arguments are.
void gemm(const CudaGemmPlan& plan, const GemmProblem& problem, const GemmOperand& a,
          const GemmRightOperand& b, const Buffer& out, const GemmOptions& options,
          Workspace workspace, Stream stream);

// As on a device of such capabilities, which out's device has at least; for tests.
void gemm_as(const CudaGemmCapabilities& capabilities, const GemmOperand& a,
             const GemmRightOperand& b, const Buffer& out, const GemmOptions& options,
             Workspace workspace, Stream stream);

}  // namespace mxkern::cuda
