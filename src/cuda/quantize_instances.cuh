// cuda/quantize_instances.cuh: the bodies behind quantize_launch.h; each file of cuda/instances/
// compiles them for one scheme.
#pragma once

#include <type_traits>

#include "cuda/launch.h"
#include "cuda/quantize_launch.h"

namespace mxkern::cuda {

// Calls body(TypeTag<T>{}, integral_constant<Rounding, R>{}, bool_constant<Plain>{}).
template <class Body>
void visit_input(DType dtype, Rounding rounding, bool plain, Body&& body) {
  visit(dtype, [&](auto type) {
    auto with_rounding = [&](auto rounding_constant) {
      if (plain) {
        body(type, rounding_constant, std::bool_constant<true>{});
      } else {
        body(type, rounding_constant, std::bool_constant<false>{});
      }
    };
    if (rounding == Rounding::nearest) {
      with_rounding(std::integral_constant<Rounding, Rounding::nearest>{});
    } else {
      with_rounding(std::integral_constant<Rounding, Rounding::stochastic>{});
    }
  });
}

template <class S>
void launch_quantize_rows(const char* function, DType dtype, Rounding rounding,
                          const kernels::QuantizeRowsParameters& p, Stream stream) {
  visit_input(dtype, rounding, kernels::is_plain(p.options), [&](auto type, auto r, auto plain) {
    using T = typename decltype(type)::type;
    launch(function, kernels::quantize_rows_kernel<S, T, r(), plain()>, grid_of(p.grid),
           kernels::row_threads, 0, stream, p);
  });
}

template <class S>
void launch_quantize_tile(const char* function, DType dtype, Rounding rounding,
                          const kernels::QuantizeTileParameters& p, Stream stream) {
  const bool plain = !p.square && kernels::is_plain(p.along_rows.options) &&
                     kernels::is_plain(p.along_columns.options);
  visit_input(dtype, rounding, plain, [&](auto type, auto r, auto plain_constant) {
    using T = typename decltype(type)::type;
    const bool wide = p.along_columns.options.hadamard_size > kernels::tile_segment;
    launch(function, kernels::quantize_tile_kernel<S, T, r(), plain_constant()>,
           grid_of(ceil_div(p.columns, kernels::tile_extent),
                   ceil_div(p.rows, kernels::tile_extent), p.batch),
           kernels::tile_threads, kernels::TileMemory<S, T>::bytes(wide), stream, p);
  });
}

#define MXKERN_INSTANTIATE_QUANTIZE(Type)                                                   \
  template void launch_quantize_rows<Type>(const char*, DType, Rounding,                    \
                                           const kernels::QuantizeRowsParameters&, Stream); \
  template void launch_quantize_tile<Type>(const char*, DType, Rounding,                    \
                                           const kernels::QuantizeTileParameters&, Stream);

}  // namespace mxkern::cuda
