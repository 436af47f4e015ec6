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
    const dim3 grid = kernels::rows_stay<S, r()>
                          ? resident_grid(function, p.grid, kernels::rows_blocks<S, T>)
                          : grid_of(p.grid);
    launch(function, kernels::quantize_rows_kernel<S, T, r(), plain()>, grid, kernels::row_threads,
           0, stream, p);
  });
}

// Which of the tile kernels has what is asked for. Training in bfloat16 has its own.
template <class S>
kernels::TileWork tile_work(DType dtype, const kernels::QuantizeTileParameters& p) {
  using kernels::TileWork;
  const kernels::OctetOptions& rows = p.along_rows.options;
  const kernels::OctetOptions& columns = p.along_columns.options;
  if (!p.square && kernels::is_plain(rows) && kernels::is_plain(columns)) return TileWork::plain;
  const bool choice = rows.four_over_six || columns.four_over_six;
  if (dtype != DType::bfloat16 || choice || rows.hadamard_size != 0) return TileWork::any;
  if (p.square) return TileWork::squares;
  return columns.hadamard_size <= S::block ? TileWork::transform : TileWork::any;
}

template <class S>
void launch_quantize_tile(const char* function, DType dtype, Rounding rounding,
                          const kernels::QuantizeTileParameters& p, Stream stream) {
  using kernels::TileWork;
  const TileWork work = tile_work<S>(dtype, p);
  const bool wide = p.along_columns.options.hadamard_size > kernels::tile_segment;
  visit_input(dtype, rounding, work == TileWork::plain, [&](auto type, auto r, auto plain) {
    using T = typename decltype(type)::type;
    const auto start = [&](auto kernel) {
      launch(function, kernel,
             grid_of(ceil_div(p.columns, kernels::tile_extent),
                     ceil_div(p.rows, kernels::tile_extent), p.batch),
             kernels::tile_threads, kernels::TileMemory<S, T>::bytes(wide), stream, p);
    };
    if constexpr (plain()) {
      start(kernels::quantize_tile_kernel<S, T, r(), TileWork::plain>);
    } else {
      if constexpr (std::is_same_v<T, bfloat16>) {
        if (work == TileWork::squares) {
          return start(kernels::quantize_tile_kernel<S, T, r(), TileWork::squares>);
        }
        if (work == TileWork::transform) {
          return start(kernels::quantize_tile_kernel<S, T, r(), TileWork::transform>);
        }
      }
      start(kernels::quantize_tile_kernel<S, T, r(), TileWork::any>);
    }
  });
}

#define MXKERN_INSTANTIATE_QUANTIZE(Type)                                                   \
  template void launch_quantize_rows<Type>(const char*, DType, Rounding,                    \
                                           const kernels::QuantizeRowsParameters&, Stream); \
  template void launch_quantize_tile<Type>(const char*, DType, Rounding,                    \
                                           const kernels::QuantizeTileParameters&, Stream);

}  // namespace mxkern::cuda
