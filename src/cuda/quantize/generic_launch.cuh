// cuda/quantize/generic_launch.cuh: launches of the kernels for schemes that have no others.
#pragma once

#include "cuda/runtime/launch.h"
#include "cuda/runtime/visit_input.h"
#include "mxkern/core/error.h"
#include "mxkern/kernels/quantize/fake_quantize.cuh"
#include "mxkern/kernels/quantize/generic.cuh"
#include "mxkern/kernels/quantize/rows.cuh"
#include "mxkern/kernels/quantize/tile/quantize.cuh"

namespace mxkern::cuda {

inline dim3 generic_grid(const char* function, const kernels::GenericLines& p) {
  check<Unsupported>(p.options.hadamard_size == 0, function,
                     ": a Hadamard transform to a scheme that CUDA kernels were not written for; "
                     "transform x with random_hadamard first");
  return grid_of(ceil_div(p.batch * p.lines * ceil_div(p.elements, 16), kernels::generic_threads));
}

template <class S>
void launch_quantize_generic(const char* function, DType dtype, Rounding rounding,
                             const kernels::GenericLines& p, const kernels::GenericCodes& out,
                             Stream stream) {
  visit_input(dtype, rounding, true, [&](auto type, auto r, auto) {
    using T = typename decltype(type)::type;
    launch<Start::early>(function, kernels::quantize_generic_kernel<S, T, r()>,
                         generic_grid(function, p), kernels::generic_threads, 0, stream, p, out);
  });
}

template <class S>
void launch_quantize_generic(const char* function, DType dtype, Rounding rounding,
                             const kernels::QuantizeRowsParameters& p, Stream stream) {
  launch_quantize_generic<S>(
      function, dtype, rounding,
      kernels::GenericLines{p.x, p.grid.batch, p.grid.rows, p.columns, p.batch_stride, p.row_stride,
                            1, p.columns, 1, p.options, false},
      kernels::GenericCodes{p.codes, p.code_row_bytes, p.scales, p.scale_index}, stream);
}

template <class S>
void launch_quantize_generic(const char* function, DType dtype, Rounding rounding,
                             const kernels::QuantizeTileParameters& p, Stream stream) {
  const auto codes = [](const kernels::TileOutput& out) {
    return kernels::GenericCodes{out.codes, out.code_row_bytes, out.scales, out.scale_index};
  };
  if (p.along_rows.codes != nullptr) {
    launch_quantize_generic<S>(
        function, dtype, rounding,
        kernels::GenericLines{p.x, p.batch, p.rows, p.columns, p.batch_stride, p.row_stride, 1,
                              p.columns, 1, p.along_rows.options, p.square},
        codes(p.along_rows), stream);
  }
  if (p.along_columns.codes != nullptr) {
    launch_quantize_generic<S>(
        function, dtype, rounding,
        kernels::GenericLines{p.x, p.batch, p.columns, p.rows, p.batch_stride, 1, p.row_stride, 1,
                              p.columns, p.along_columns.options, p.square},
        codes(p.along_columns), stream);
  }
}

template <class S>
void launch_fake_quantize_generic(const char* function, DType dtype, Rounding rounding, bool square,
                                  const kernels::FakeQuantizeParameters& p, Stream stream) {
  const kernels::GenericLines lines = {
      p.x, p.grid.batch, p.grid.rows, p.columns, p.x_batch_stride, p.x_row_stride, 1, p.columns,
      1,   p.options,    square};
  const kernels::GenericOutput out = {p.out, p.out_batch_stride, p.out_row_stride};
  visit_input(dtype, rounding, true, [&](auto type, auto r, auto) {
    using T = typename decltype(type)::type;
    launch<Start::early>(function, kernels::fake_quantize_generic_kernel<S, T, r()>,
                         generic_grid(function, lines), kernels::generic_threads, 0, stream, lines,
                         out);
  });
}

}  // namespace mxkern::cuda
