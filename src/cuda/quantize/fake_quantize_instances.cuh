// cuda/quantize/fake_quantize_instances.cuh: the bodies behind fake_quantize_launch.h; files of
// cuda/instances/ compile them for one scheme.
#pragma once

#include "cuda/quantize/fake_quantize_launch.h"
#include "cuda/quantize/generic_launch.cuh"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/row_grids.h"
#include "cuda/runtime/visit_input.h"

namespace mxkern::cuda {

template <class S>
void launch_own_fake_quantize(const char* function, DType dtype, const QuantizeOptions& options,
                              const kernels::FakeQuantizeParameters& p, Stream stream) {
  using kernels::FakeWork;
  const bool is_random = options.rounding == Rounding::stochastic;
  const bool are_whole =
      kernels::words_are_whole(p.grid.batch * p.grid.rows * p.columns, p.columns);
  visit_input(dtype, options.rounding, is_random && are_whole, [&](auto type, auto r, auto whole) {
    using T = typename decltype(type)::type;
    constexpr auto work =
        whole() && r() == Rounding::stochastic ? FakeWork::whole : FakeWork::usual;
    const auto start = [&](auto kernel, dim3 grid) {
      launch<Start::early>(function, kernel, grid, kernels::row_threads, 0, stream, p);
    };
    if (options.block_shape == BlockShape::square) {
      using Squares = kernels::FakeSquares<S>;
      return start(kernels::fake_quantize_squares_kernel<S, T, r(), work>,
                   grid_of(ceil_div(p.columns, Squares::columns * Squares::warps),
                           ceil_div(p.grid.rows, S::block), p.grid.batch));
    }
    if constexpr (S::has_tensor_scale) {
      if (options.four_over_six) {
        return start(kernels::fake_quantize_kernel<S, T, r(), FakeWork::any>, grid_of(p.grid));
      }
    }
    start(kernels::fake_quantize_kernel<S, T, r(), work>, grid_of(p.grid));
  });
}

template <class S>
void launch_fake_quantize(const char* function, DType dtype, const QuantizeOptions& options,
                          const kernels::FakeQuantizeParameters& p, Stream stream) {
  if constexpr (kernels::has_own_kernels<S>) {
    launch_own_fake_quantize<S>(function, dtype, options, p, stream);
  } else {
    launch_fake_quantize_generic<S>(function, dtype, options.rounding,
                                    options.block_shape == BlockShape::square, p, stream);
  }
}

}  // namespace mxkern::cuda
