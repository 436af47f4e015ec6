// cpu/gemm/gemm.h: the matrix product on the CPU, its arguments checked and its plan made.
#pragma once

#include <cstdint>

#include "cpu/gemm/kernels.h"
#include "plan/gemm_cpu.h"

namespace mxkern::cpu {

// The operands of a batch: its first matrices, and how far apart the others are.
struct GemmTask {
  GemmMatrix left;
  GemmMatrix right;
  std::int64_t left_batch_bytes;
  std::int64_t left_batch_scales;
  std::int64_t right_batch_bytes;  // 0: one matrix for the whole batch
  std::int64_t right_batch_scales;
  std::int64_t right_batch_panels;
  std::uint8_t* out;
  std::int64_t out_batch_bytes;
  GemmFinish finish;
  const void* bias;  // may be null
  DType bias_dtype;
  std::int64_t first_row = 0;  // of the left operand and of out: those from here to left.rows
};

// workspace: plan.workspace_bytes, aligned to 64.
void gemm(const GemmTask& task, const CpuGemmPlan& plan, void* workspace);

}  // namespace mxkern::cpu
