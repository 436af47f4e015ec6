// mxkern/kernels/gemm/hopper/fused_dispatch.cuh: the folded and the exact product of two operands
// in one kernel, which finds out which of them it is to be.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mxkern/kernels/operands/expand.cuh"
#include "mxkern/kernels/gemm/hopper/gemm.cuh"
#include "mxkern/kernels/ptx/progress.cuh"
#include "mxkern/numerics/fold.h"

namespace mxkern::kernels {

// Rows of codes that a kernel expands before it multiplies them, if it does. Warps take rows in
// order, with an atomic addition, so that whichever thread blocks run make all of them, and none
// waits for one that has not started.
struct RowsToExpand {
  ExpandOperand operand;    // no rows: they are there
  std::uint32_t* progress;  // how many rows are taken, and how many are ready; zeros before
  int exponent;             // of the largest elements of a row

  __device__ __forceinline__ std::int64_t rows() const { return operand.batch * operand.rows; }

  // By all warps. Element: what the operand's scheme folds to.
  template <class Element>
  __device__ __forceinline__ void make() const {
    if (rows() == 0) return;
#define MXKERN_MAKE(Type) make_if<Element, Type>();
    MXKERN_FOR_EACH_SCHEME(MXKERN_MAKE)
#undef MXKERN_MAKE
  }

  // Until all rows are ready, for the copy engine too.
  __device__ __forceinline__ void wait() const {
    if (rows() == 0) return;
    while (ptx::load_acquire(progress + 1) != static_cast<std::uint32_t>(rows())) __nanosleep(64);
    ptx::fence_global_for_tma();
  }

 private:
  template <class Element, class S>
  __device__ __forceinline__ void make_if() const {
    if constexpr (scheme_can_fold<S>) {
      if constexpr (std::is_same_v<typename Fold<typename S::Format>::Target, Element>) {
        if (operand.scheme == S::id) make_all<S>();
      }
    }
  }

  template <class S>
  __device__ __forceinline__ void make_all() const {
    const RowTeam warp(5);
    const auto take = [&] { return warp.rank == 0 ? atomicAdd(progress, 1u) : 0u; };
    std::uint32_t taken = take();
#pragma unroll 1
    while (true) {
      const std::int64_t row = __shfl_sync(0xFFFFFFFFu, taken, 0);
      if (row >= rows()) return;
      taken = take();  // the answer arrives while this row is made
      ExpandCodes<S>{ExpandRow(operand, warp, row)}(exponent);
      ptx::fence_global_for_tma();
      __syncwarp();
      if (warp.rank == 0) ptx::add_release(progress + 1);
    }
  }
};

template <class LeftElement, class RightElement, int Columns>
struct FusedDispatchSm90 {
  using Left = LeftElement;
  using Right = RightElement;
  using Folded = GemmSm90Config<Left, Right, Columns>;
  struct Exact : GemmSm90Config<bfloat16, bfloat16, Columns> {
    static constexpr bool has_late_rows = false, clears_sums = true;
  };
  static constexpr int columns = Columns;
  static_assert(Folded::threads == Exact::threads && Folded::stages == Exact::stages &&
                    Folded::stage_bytes == Exact::stage_bytes &&
                    Folded::parts_offset == Exact::parts_offset &&
                    Folded::shared_bytes == Exact::shared_bytes,
                "both products have their barriers in the same places");
};

// One kernel instead of a folded product and two kernels behind it that have nothing to do where
// that is right. The gate of the folded product says whether it is.
template <class Either>
__global__ void __launch_bounds__(Either::Folded::threads, 1)
    gemm_sm90_fused_dispatch(const __grid_constant__ CUtensorMap folded_left,
                             const __grid_constant__ CUtensorMap folded_right,
                             const __grid_constant__ CUtensorMap expanded_left,
                             const __grid_constant__ CUtensorMap expanded_right,
                             const __grid_constant__ CUtensorMap out,
                             const __grid_constant__ GemmSm90Parameters folded,
                             const __grid_constant__ GemmSm90Parameters exact,
                             const __grid_constant__ RowsToExpand left,
                             const __grid_constant__ RowsToExpand right) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared[];
  const GemmSm90<typename Either::Folded> block(folded, folded_left, folded_right, out, shared);
  if (threadIdx.x == 0) block.init();
  block.sync();
  if (wait_at_gate(folded.gate)) {
    block.take_roles();
    return;
  }
  left.template make<typename Either::Left>();
  right.template make<typename Either::Right>();
  left.wait();
  right.wait();
  const GemmSm90<typename Either::Exact> other(exact, expanded_left, expanded_right, out, shared);
  if (threadIdx.x == 0) other.fill_parts();
  __syncthreads();
  other.take_roles();
#elif defined(__CUDA_ARCH__)
  __trap();  // compiled for the list of architectures, and never chosen elsewhere
#endif
}

}  // namespace mxkern::kernels
