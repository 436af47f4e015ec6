// mxkern/kernels/gemm_sm90_either.cuh: the folded and the exact product of two operands in one
// kernel, which finds out which of them it is to be.
#pragma once

#include <cstdint>

#include "mxkern/kernels/gemm_sm90.cuh"

namespace mxkern::kernels {

// What the exact product multiplies: rows that the kernel expands before it.
struct ExpandedInside {
  LateRows operands[2];  // left and right, all of whose rows are late

  // By all threads of all thread blocks: warps take rows in order and make them, and wait for those
  // that others have taken. They all count at the first counter of their operand.
  template <int Warps>
  __device__ __forceinline__ void make() const {
#pragma unroll 1
    for (const LateRows& rows : operands) {
      LateRowMaker<Warps>{rows, rows.rows, static_cast<int>(threadIdx.x % 32)}.run();
    }
#pragma unroll 1
    for (const LateRows& rows : operands) LateRowsSeen(rows).wait(rows, 0, rows.rows);
  }
};

template <int Columns>
struct EitherSm90 {
  using Folded = GemmSm90Config<E4M3, E4M3, Columns>;
  struct Exact : GemmSm90Config<bfloat16, bfloat16, Columns> {
    static constexpr bool has_late_rows = false, clears_sums = true;
  };
  static constexpr int columns = Columns;
  static_assert(Folded::threads == Exact::threads && Folded::stages == Exact::stages &&
                    Folded::stage_bytes == Exact::stage_bytes &&
                    Folded::parts_offset == Exact::parts_offset &&
                    Folded::shared_bytes == Exact::shared_bytes,
                "both products have their barriers in the same places");
  static constexpr int warps = Folded::threads / 32;
};

// One kernel instead of a folded product and two kernels behind it that have nothing to do where
// that is right. The gate of the folded product says whether it is.
template <int Columns>
__global__ void __launch_bounds__(EitherSm90<Columns>::Folded::threads, 1)
    gemm_sm90_either(const __grid_constant__ CUtensorMap folded_left,
                     const __grid_constant__ CUtensorMap folded_right,
                     const __grid_constant__ CUtensorMap expanded_left,
                     const __grid_constant__ CUtensorMap expanded_right,
                     const __grid_constant__ CUtensorMap out,
                     const __grid_constant__ GemmSm90Parameters folded,
                     const __grid_constant__ GemmSm90Parameters exact,
                     const __grid_constant__ ExpandedInside expanded) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  using Either = EitherSm90<Columns>;
  extern __shared__ __align__(1024) unsigned char shared[];
  const auto block =
      block_sm90<typename Either::Folded>(folded, folded_left, folded_right, out, shared);
  if (threadIdx.x == 0) block.init();
  block.sync();
  if (wait_at_gate(folded.gate)) {
    block.compute();
    return;
  }
  expanded.make<Either::warps>();
  const auto other =
      block_sm90<typename Either::Exact>(exact, expanded_left, expanded_right, out, shared);
  if (threadIdx.x == 0) other.fill_parts();
  __syncthreads();
  other.compute();
#elif defined(__CUDA_ARCH__)
  __trap();  // compiled for the list of architectures, and never chosen elsewhere
#endif
}

}  // namespace mxkern::kernels
