// mxkern/kernels/gemm/blackwell/collective.cuh: CUTLASS's block-scaled collectives as one kernel of
// ours. Needs CUTLASS 4.2 and `nvcc --expt-relaxed-constexpr`. Compiled, never executed.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cute/tensor.hpp>
#include <cutlass/cutlass.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <type_traits>

#include "mxkern/core/dtype.h"
#include "mxkern/kernels/gemm/blackwell/product.cuh"

namespace mxkern::kernels {

// Config says what differs between architectures and pairs of schemes:
//   Architecture, Tile, Cluster, Schedule, EpilogueSchedule   as the collective builders take them
//   Left, Right                             element with scale format, as mx_float8_t<...>
//   EpilogueTile<Out>                       of the output, that is in shared memory at a time
//   left_alignment, right_alignment         of a row, in elements
//   select_formats(arguments, product)      where the element format is known at run time only
template <class Config, class OutDType>
struct BlockScaledGemm {
  using Out = std::conditional_t<std::is_same_v<OutDType, bfloat16>, cutlass::bfloat16_t, float>;
  static constexpr int out_alignment = 16 / sizeof(Out);

  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      typename Config::Architecture, cutlass::arch::OpClassBlockScaledTensorOp,
      typename Config::Tile, typename Config::Cluster, typename Config::template EpilogueTile<Out>,
      float, float, Out, cutlass::layout::RowMajor, out_alignment, Out, cutlass::layout::RowMajor,
      out_alignment, typename Config::EpilogueSchedule,
      cutlass::epilogue::fusion::LinCombPerColBias<Out, float, float, Out>>::CollectiveOp;

  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      typename Config::Architecture, cutlass::arch::OpClassBlockScaledTensorOp,
      typename Config::Left, cutlass::layout::RowMajor, Config::left_alignment,
      typename Config::Right, cutlass::layout::ColumnMajor, Config::right_alignment, float,
      typename Config::Tile, typename Config::Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
          sizeof(typename Epilogue::SharedStorage))>,
      typename Config::Schedule>::CollectiveOp;

  using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop,
                                                      Epilogue, void>;
  using Adapter = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
  using Arguments = typename Adapter::Arguments;
  using ScaleConfig = typename Mainloop::Sm1xxBlkScaledConfig;

  // The scales come by TMA, and CUTLASS 4.2 leaves their alignment to what lies before them.
  static_assert(sizeof(Mainloop::TensorStorage::smem_A) % 128 == 0 &&
                    sizeof(Mainloop::TensorStorage::smem_B) % 128 == 0 &&
                    sizeof(Mainloop::TensorStorage::smem_SFA) % 128 == 0,
                "the scales of a stage start on 128 bytes of shared memory");

  static auto strides(std::int64_t row, std::int64_t batch) {
    return cute::make_stride(row, cute::Int<1>{}, batch);
  }

  static Arguments arguments(const BlockScaledProduct& p, int processors) {
    const auto shape = cute::make_shape(p.m, p.n, p.k, p.batch);
    const std::int64_t k = p.k;
    Arguments result{};
    result.mode = cutlass::gemm::GemmUniversalMode::kGemm;
    result.problem_shape = shape;
    auto& main = result.mainloop;
    using LeftPointer = decltype(main.ptr_A);
    using RightPointer = decltype(main.ptr_B);
    using ScalePointer = decltype(main.ptr_SFA);
    main.ptr_A = reinterpret_cast<LeftPointer>(p.left_codes);
    main.dA = strides(k, p.m * k);
    main.ptr_B = reinterpret_cast<RightPointer>(p.right_codes);
    main.dB = strides(k, p.n * k);
    main.ptr_SFA = reinterpret_cast<ScalePointer>(p.left_scales);
    main.layout_SFA = ScaleConfig::tile_atom_to_shape_SFA(shape);
    main.ptr_SFB = reinterpret_cast<ScalePointer>(p.right_scales);
    main.layout_SFB = ScaleConfig::tile_atom_to_shape_SFB(shape);
    Config::select_formats(main, p);
    auto& finish = result.epilogue;
    finish.ptr_C = static_cast<const Out*>(p.out);
    finish.dC = strides(p.row_stride, p.batch_stride);
    finish.ptr_D = static_cast<Out*>(p.out);
    finish.dD = strides(p.row_stride, p.batch_stride);
    finish.thread.alpha = p.alpha;
    finish.thread.alpha_ptr = p.alpha_pointer;
    finish.thread.beta = p.beta;
    finish.thread.bias_ptr = p.bias;
    result.hw_info.sm_count = processors;
    return result;
  }

  static bool can_implement(const BlockScaledProduct& product) {
    return Adapter::can_implement(arguments(product, 1)) == cutlass::Status::kSuccess;
  }

  static std::size_t workspace_bytes(const BlockScaledProduct& product) {
    return Adapter::get_workspace_size(arguments(product, 1));
  }

  static const char* launch(const BlockScaledProduct& product, int processors, void* stream) {
    const auto queue = static_cast<cudaStream_t>(stream);
    Adapter adapter;
    auto status = adapter.initialize(arguments(product, processors), nullptr, queue);
    if (status == cutlass::Status::kSuccess) status = adapter.run(queue);
    return status == cutlass::Status::kSuccess ? nullptr : cutlass::cutlassGetStatusString(status);
  }

  static BlockScaledKernel functions() { return {can_implement, workspace_bytes, launch}; }
};

}  // namespace mxkern::kernels
