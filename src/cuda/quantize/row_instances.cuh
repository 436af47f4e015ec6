// cuda/quantize/row_instances.cuh: which kernel along the rows takes what, and in which grid.
#pragma once

#include <algorithm>

#include "cuda/runtime/even_bytes.h"
#include "cuda/runtime/launch.h"
#include "cuda/quantize/launch.h"
#include "cuda/runtime/row_grids.h"
#include "cuda/runtime/visit_input.h"
#include "mxkern/kernels/quantize/rows_four_over_six.cuh"
#include "mxkern/kernels/quantize/dense_rows.cuh"
#include "mxkern/kernels/quantize/small_rows.cuh"
#include "tuning/h200.h"

namespace mxkern::cuda {

// Plain quantization, of either rounding, with vector loads and stores.
inline bool is_plain_in_vectors(const kernels::QuantizeRowsParameters& p) {
  return kernels::is_plain(p.options) && p.vector_loads && p.vector_stores;
}

inline bool is_usual(Rounding rounding, const kernels::QuantizeRowsParameters& p) {
  return rounding == Rounding::nearest && is_plain_in_vectors(p);
}

// Whether there is nothing but whole tiles.
inline bool has_whole_tiles(const kernels::QuantizeRowsParameters& p) {
  return p.grid.rows % ScaleIndex::tile_rows == 0 &&
         p.columns % (std::int64_t{8} << p.grid.log2_across) == 0;
}

inline bool is_whole(Rounding rounding, const kernels::QuantizeRowsParameters& p) {
  return is_usual(rounding, p) && has_whole_tiles(p);
}

// Or nothing but whole stretches of adjacent elements, with scales as adjacent.
template <class S>
bool is_dense(Rounding rounding, const kernels::QuantizeRowsParameters& p) {
  return is_usual(rounding, p) && p.scale_index.layout == ScaleLayout::row_major &&
         p.grid.batch == 1 && p.row_stride == p.columns && p.columns % S::block == 0 &&
         p.grid.rows * p.columns % kernels::stretch_elements == 0;
}

// Whether every octet gets a thread.
template <class S>
bool is_small(Rounding rounding, const kernels::QuantizeRowsParameters& p) {
  const bool whole = is_whole(rounding, p) || is_dense<S>(rounding, p);
  namespace tuned = tuning::h200::quantize;
  const std::int64_t too_many = !whole                ? tuned::small_threads_ragged
                                : S::has_tensor_scale ? tuned::small_threads_of_nvfp4
                                                      : tuned::small_threads;
  return is_usual(rounding, p) && p.columns % S::block == 0 &&
         kernels::SmallGrid::of(p.grid, p.scale_index).threads() < too_many;
}

// As many thread blocks as the device holds, each of which walks through its share of the groups of
// rows; one for each group where there are many, as thread blocks that stay drift apart. NVFP4's
// stay, where they begin with a table.
template <class S>
void launch_whole_rows(const char* function, DType dtype, kernels::QuantizeRowsParameters p,
                       Stream stream) {
  visit(dtype, [&]<class T>(TypeTag<T>) {
    using kernels::RowsWork;
    constexpr int blocks = kernels::rows_blocks<S, T, Rounding::nearest, RowsWork::whole>;
    const int processors = processor_count(function);
    const std::int64_t others = p.grid.chunks() * p.grid.batch, resident = processors * blocks;
    p.grid.log2_depth = 0;
    if constexpr (kernels::once_pays<S, T>) {
      const dim3 grid = grid_of(p.grid);
      const bool wraps = grid.y < p.grid.groups() || grid.z < p.grid.batch;
      if (p.grid.groups() * others > tuning::h200::quantize::once_rounds * resident && !wraps) {
        return launch<Start::early>(
            function, kernels::quantize_rows_kernel<S, T, Rounding::nearest, RowsWork::once>, grid,
            kernels::row_threads, 0, stream, p);
      }
    }
    const std::int64_t most_down = std::max<std::int64_t>(1, resident / others);
    if (p.grid.groups() / 2 * others >= processors) p.grid.log2_depth = 1;
    // NVFP4's thread blocks have one series of four groups instead of two of two. With more of them
    // rows that are read at the same time would lie too far apart.
    const bool has_two = S::has_tensor_scale && ceil_div(p.grid.groups() / 2, most_down) == 2;
    if (has_two && p.grid.groups() % 4 == 0 && p.grid.log2_groups() >= 2) p.grid.log2_depth = 2;
    const std::int64_t series = p.grid.series();
    p.fetches = !S::has_tensor_scale || series * others <= resident;
    const std::int64_t down = std::min(series, most_down);
    const dim3 grid = grid_of(p.grid.chunks(), down, p.grid.batch);
    launch<Start::early>(function,
                         kernels::quantize_rows_kernel<S, T, Rounding::nearest, RowsWork::whole>,
                         grid, kernels::row_threads, even_bytes(function, grid, blocks), stream, p);
  });
}

// The same for stretches.
template <class S>
void launch_dense(const char* function, DType dtype, const kernels::QuantizeRowsParameters& rows,
                  Stream stream) {
  const kernels::QuantizeDenseParameters p = {
      rows.x,        rows.codes,
      rows.scales,   rows.tensor_scale,
      rows.options,  rows.grid.rows * rows.columns / kernels::stretch_elements,
      rows.backwards};
  visit(dtype, [&]<class T>(TypeTag<T>) {
    const std::int64_t resident = processor_count(function) * kernels::dense_blocks<S, T, true>;
    const std::int64_t blocks = ceil_div(p.stretches, kernels::stretches_at_once);
    const auto launch_blocks = [&](auto kernel, std::int64_t count) {
      launch<Start::early>(function, kernel, grid_of(count), kernels::row_threads, 0, stream, p);
    };
    if constexpr (kernels::once_pays<S, T>) {
      if (blocks > 3 * resident) {
        return launch_blocks(kernels::quantize_dense_kernel<S, T, false>, blocks);
      }
    }
    launch_blocks(kernels::quantize_dense_kernel<S, T, true>, std::min(blocks, resident));
  });
}

// A series for every thread block, of as many groups as still leave one for every place. What
// measured fastest on an H100.
template <class S>
void launch_random_rows(const char* function, DType dtype, kernels::QuantizeRowsParameters p,
                        Stream stream) {
  visit(dtype, [&]<class T>(TypeTag<T>) {
    using kernels::RowsWork;
    constexpr int blocks = kernels::rows_blocks<S, T, Rounding::stochastic, RowsWork::once>;
    const std::int64_t places = processor_count(function) * blocks;
    const std::int64_t others = p.grid.chunks() * p.grid.batch;
    p.grid.log2_depth = 0;
    while (p.grid.log2_depth < std::min(3, p.grid.log2_groups()) &&
           (p.grid.series() >> 1) * others >= places * 9 / 10) {
      ++p.grid.log2_depth;
    }
    const dim3 grid = grid_of(p.grid);
    launch<Start::early>(function,
                         kernels::quantize_rows_kernel<S, T, Rounding::stochastic, RowsWork::once>,
                         grid, kernels::row_threads, even_bytes(function, grid, blocks), stream, p);
  });
}

// Whether launch_random_rows can take them.
inline bool is_random(Rounding rounding, const kernels::QuantizeRowsParameters& p) {
  const dim3 grid = grid_of(p.grid);
  return rounding == Rounding::stochastic && is_plain_in_vectors(p) && has_whole_tiles(p) &&
         kernels::words_are_whole(p.grid.batch * p.grid.rows * p.columns, p.columns) &&
         grid.y == p.grid.series() && grid.z == p.grid.batch;
}

// Whether 4over6 chooses scales of whole blocks, with vector loads and stores.
inline bool is_chosen(const kernels::QuantizeRowsParameters& p) {
  return p.options.four_over_six && p.options.hadamard_size == 0 && p.vector_loads &&
         p.columns % NvFp4::block == 0 && starts_on(p.codes, 8);
}

template <class S>
void launch_chosen(const char* function, DType dtype, Rounding rounding,
                   const kernels::QuantizeRowsParameters& rows, Stream stream) {
  constexpr std::int64_t octets_of_block = S::block / 8;
  constexpr int log2_depth = 1;
  const kernels::QuantizeChosenParameters p = {
      row_grid(rows.grid.batch, rows.grid.rows, rows.grid.octets / octets_of_block, log2_depth),
      rows.x,
      rows.columns,
      rows.batch_stride,
      rows.row_stride,
      rows.codes,
      rows.scales,
      rows.scale_index,
      rows.tensor_scale,
      rows.options,
      rows.backwards};
  visit(dtype, [&](auto type) {
    visit(rounding, [&](auto r) {
      using T = typename decltype(type)::type;
      constexpr int blocks = kernels::chosen_blocks<T, r()>;
      const std::int64_t resident = processor_count(function) * blocks;
      const std::int64_t most_down =
          std::max<std::int64_t>(1, resident / (p.grid.chunks() * p.grid.batch));
      const std::int64_t down = std::min(p.grid.series(), most_down);
      const dim3 grid = grid_of(p.grid.chunks(), down, p.grid.batch);
      const auto kernel = is_of_magnitudes(p.options.block_error)
                              ? kernels::quantize_chosen_kernel<S, T, r(), BlockError::mae>
                              : kernels::quantize_chosen_kernel<S, T, r(), BlockError::mse>;
      launch<Start::early>(function, kernel, grid, kernels::row_threads,
                           even_bytes(function, grid, blocks), stream, p);
    });
  });
}

template <class S>
void launch_own_rows(const char* function, DType dtype, Rounding rounding,
                     const kernels::QuantizeRowsParameters& p, Stream stream) {
  if (is_small<S>(rounding, p)) {
    const auto grid = kernels::SmallGrid::of(p.grid, p.scale_index);
    return visit(dtype, [&]<class T>(TypeTag<T>) {
      launch<Start::early>(function, kernels::quantize_small_kernel<S, T>,
                           grid_of(ceil_div(grid.threads(), kernels::small_threads)),
                           kernels::small_threads, 0, stream, p, grid);
    });
  }
  if (is_dense<S>(rounding, p)) return launch_dense<S>(function, dtype, p, stream);
  if (is_whole(rounding, p)) return launch_whole_rows<S>(function, dtype, p, stream);
  if (is_random(rounding, p)) return launch_random_rows<S>(function, dtype, p, stream);
  if constexpr (S::has_tensor_scale) {
    if (is_chosen(p)) return launch_chosen<S>(function, dtype, rounding, p, stream);
  }
  visit_input(dtype, rounding, kernels::is_plain(p.options), [&](auto type, auto r, auto plain) {
    using T = typename decltype(type)::type;
    constexpr auto work = plain() ? kernels::RowsWork::plain : kernels::RowsWork::any;
    const dim3 grid = kernels::rows_stay<S, r()>
                          ? resident_grid(function, p.grid, kernels::rows_blocks<S, T, r(), work>)
                          : grid_of(p.grid);
    launch<Start::early>(function, kernels::quantize_rows_kernel<S, T, r(), work>, grid,
                         kernels::row_threads, 0, stream, p);
  });
}

}  // namespace mxkern::cuda
