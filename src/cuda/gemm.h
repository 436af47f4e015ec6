// cuda/gemm.h: the matrix product on a CUDA device; arguments are checked already.
#pragma once

#include "mxkern/gemm.h"
#include "plan_gemm_cuda.h"

namespace mxkern::cuda {

// What the device and this build can do. Throws Unsupported where there is no such device.
CudaGemmCapabilities gemm_capabilities(const char* function, Device device);

std::size_t gemm_workspace_bytes(const GemmOperand& a, const GemmRightOperand& b, const Buffer& out,
                                 const GemmOptions& options);

// As on a device of such capabilities, which out's device has at least.
void gemm_as(const CudaGemmCapabilities& capabilities, const GemmOperand& a,
             const GemmRightOperand& b, const Buffer& out, const GemmOptions& options,
             Workspace workspace, Stream stream);

void gemm(const GemmOperand& a, const GemmRightOperand& b, const Buffer& out,
          const GemmOptions& options, Workspace workspace, Stream stream);

}  // namespace mxkern::cuda
