// cuda/quantize/tile_instances.cuh: which kernel takes what along the columns or in both
// directions, and in which grid.
#pragma once

#include <algorithm>
#include <optional>
#include <type_traits>

#include "cuda/runtime/even_bytes.h"
#include "cuda/runtime/launch.h"
#include "cuda/quantize/launch.h"
#include "cuda/runtime/visit_input.h"
#include "mxkern/kernels/quantize/tile/whole.cuh"
#include "tuning/h200.h"

namespace mxkern::cuda {

// What of a kernel for whole tiles, which has no code for rare options, is asked for, if any is.
template <class S>
std::optional<kernels::PatchWork> patch_work(DType dtype, Rounding rounding,
                                             const kernels::QuantizeTileParameters& p) {
  using kernels::PatchWork;
  const kernels::TileOutput &rows = p.along_rows, &columns = p.along_columns;
  const kernels::OctetOptions &one = rows.options, &other = columns.options;
  const bool with_rows = rows.codes != nullptr, with_columns = columns.codes != nullptr;
  if (dtype == DType::float32 || !p.vector_loads) return {};
  const auto vectors = [](const kernels::TileOutput& out) {
    return out.codes == nullptr || (out.vector_stores && starts_on(out.scales, 4));
  };
  if (!vectors(rows) || !vectors(columns)) return {};
  if (one.four_over_six || other.four_over_six) return {};
  if ((with_rows && one.hadamard_size != 0) || other.hadamard_size > S::block) return {};
  const bool together = with_rows && with_columns;
  if (rounding == Rounding::stochastic) {
    const bool same = one.keys == other.keys && one.offset == other.offset;
    if (together && other.hadamard_size == 0 && !same) return {};
    if (!kernels::words_are_whole(p.batch * p.rows * p.columns, p.columns)) return {};
  }
  if (p.square) {
    const bool same_scale =
        S::has_tensor_scale ? kernels::same_tensor_scale(one, other) : one.rule == other.rule;
    if (together && !same_scale) return {};
    return PatchWork::squares;
  }
  if (other.hadamard_size != 0) return PatchWork::transform;
  return with_rows ? PatchWork::both : PatchWork::columns;
}

// A plain tile kernel does with fewer registers than the one that knows all options.
template <class S>
void launch_tiles(const char* function, DType dtype, Rounding rounding,
                  const kernels::QuantizeTileParameters& p, dim3 grid, Stream stream) {
  const bool plain = !p.square && kernels::is_plain(p.along_rows.options) &&
                     kernels::is_plain(p.along_columns.options);
  const bool wide = p.along_columns.options.hadamard_size > kernels::tile_segment;
  visit_input(dtype, rounding, plain, [&](auto type, auto r, auto is_plain) {
    using T = typename decltype(type)::type;
    constexpr auto work = is_plain() ? kernels::TileKind::plain : kernels::TileKind::any;
    constexpr int resident = kernels::tile_blocks_at_once<S, T, r(), work>();
    const int bytes = kernels::TileMemory<S, T>::bytes(wide);
    launch<Start::early>(function, kernels::quantize_tile_kernel<S, T, r(), work>, grid,
                         kernels::tile_threads, even_bytes(function, grid, resident, bytes), stream,
                         p);
  });
}

// Calls body(integral_constant<Rounding, R>{}, integral_constant<PatchWork, W>{}) where patches pay
// for these; whether they do.
template <class S, class Body>
bool visit_patches(Rounding rounding, kernels::PatchWork work, Body&& body) {
  using kernels::PatchWork;
  const auto with_work = [&](auto r, auto w) {
    if constexpr (kernels::patches_pay<S, r(), w()>) body(r, w);
    return kernels::patches_pay<S, r(), w()>;
  };
  return visit(rounding, [&](auto r) {
    switch (work) {
      case PatchWork::both:
        return with_work(r, std::integral_constant<PatchWork, PatchWork::both>{});
      case PatchWork::columns:
        return with_work(r, std::integral_constant<PatchWork, PatchWork::columns>{});
      case PatchWork::squares:
        return with_work(r, std::integral_constant<PatchWork, PatchWork::squares>{});
      case PatchWork::transform: break;
    }
    return with_work(r, std::integral_constant<PatchWork, PatchWork::transform>{});
  });
}

// Whether patches pay for the whole tiles of x, and the grid has room for them.
template <class S>
bool are_for_patches(kernels::PatchWork work, Rounding rounding,
                     const kernels::QuantizeTileParameters& p) {
  const std::int64_t down = p.rows / kernels::tile_extent;
  const dim3 grid = grid_of(1, down, p.batch);
  bool fits = true;
  const bool pays = visit_patches<S>(rounding, work, [&](auto r, auto w) {
    fits = kernels::patch_stays<S, r(), w()> || (grid.y == down && grid.z == p.batch);
  });
  return pays && fits;
}

// The tiles that a thread block which stays takes together: of groups that there is memory for,
// those that take the least time, by the tiles and the stores of row-major scales of a thread
// block.
template <class Memory>
kernels::PatchGroup patch_group(const char* function, const kernels::QuantizeTileParameters& p,
                                std::int64_t across, std::int64_t down, int a_processor) {
  const auto in_lines = [](const kernels::TileOutput& out) {
    return out.codes == nullptr || (out.scale_index.layout == ScaleLayout::row_major &&
                                    starts_on(out.scales, 8) && out.scale_index.blocks % 8 == 0);
  };
  if (!in_lines(p.along_rows) || !in_lines(p.along_columns)) return {};
  constexpr int tables = 4096;  // what a thread block has besides, and what is reserved
  const int memory = attribute_of(function, cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  const std::int64_t resident = processor_count(function) * a_processor;
  kernels::PatchGroup best = {};
  std::int64_t least = 0;
  for (const int log2_across : {0, 1, 2}) {
    for (const int log2_down : {0, 1, 2}) {
      const kernels::PatchGroup group = {log2_across, log2_down};
      const std::int64_t wide = 1 << log2_across, high = 1 << log2_down;
      const bool is_alone = wide * high == 1;
      const bool fits = Memory::bytes(group) + tables <= memory / a_processor;
      if (!is_alone && (!fits || across % wide != 0 || down % high != 0)) continue;
      const std::int64_t groups = across * down * p.batch / (wide * high);
      const std::int64_t stores = kernels::tile_extent / wide + kernels::tile_extent / high;
      const std::int64_t time = ceil_div(groups, resident) * wide * high *
                                (tuning::h200::quantize::stores_of_a_tile + stores);
      if (is_alone || time < least) {
        best = group;
        least = time;
      }
    }
  }
  return best;
}

// Quantizes the whole tiles of x, which are for patches.
template <class S>
void launch_patches(const char* function, DType dtype, kernels::PatchWork work, Rounding rounding,
                    kernels::QuantizeTileParameters p, Stream stream) {
  // A direction that is not wanted has the other's options, and nothing to store.
  if (p.along_rows.codes == nullptr) {
    p.along_rows = p.along_columns;
    p.along_rows.codes = nullptr;
  } else if (p.along_columns.codes == nullptr) {
    p.along_columns = p.along_rows;
    p.along_columns.codes = nullptr;
  }
  const kernels::OctetOptions &one = p.along_rows.options, &other = p.along_columns.options;
  p.words_differ = !(one.keys == other.keys && one.offset == other.offset);
  const std::int64_t across = p.columns / kernels::tile_extent;
  const std::int64_t down = p.rows / kernels::tile_extent;
  visit_patches<S>(rounding, work, [&](auto r, auto w) {
    constexpr bool stays = kernels::patch_stays<S, r(), w()>;
    using Memory = kernels::PatchMemory<S, stays, kernels::patch_exchanges<S, r(), w()>>;
    std::int64_t blocks = across * down * p.batch;
    dim3 grid = grid_of(across, down, p.batch);
    kernels::PatchGroup group = {};
    constexpr int a_processor = kernels::patch_blocks<S, r(), w()>;
    if constexpr (stays) {
      group = patch_group<Memory>(function, p, across, down, a_processor);
      blocks = std::min<std::int64_t>(blocks >> (group.log2_across + group.log2_down),
                                      processor_count(function) * a_processor);
      grid = grid_of(blocks);
    }
    const int bytes = even_bytes(function, grid, a_processor, Memory::bytes(group));
    const auto launch_of = [&](auto type) {
      launch<Start::early>(function, kernels::quantize_patch_kernel<S, decltype(type), r(), w()>,
                           grid, kernels::patch_threads, bytes, stream, p,
                           kernels::PatchGrid::of(across >> group.log2_across,
                                                  down >> group.log2_down, p.batch, blocks, group));
    };
    dtype == DType::bfloat16 ? launch_of(bfloat16{}) : launch_of(float16{});
  });
}

// One direction of whole tiles, whose `lines` lines of codes go on down x, or across it. None if it
// has rare options, or is out of reach.
template <class S>
std::optional<kernels::WholeOutput> whole_output(const kernels::TileOutput& out, std::int64_t lines,
                                                 bool down) {
  constexpr std::int64_t extent = kernels::tile_extent, blocks = extent / S::block;
  const ScaleIndex& index = out.scale_index;
  const bool swizzled = index.layout == ScaleLayout::swizzled;
  const bool whole_words =
      starts_on(out.scales, swizzled ? 4 : blocks) && (swizzled || index.blocks % blocks == 0);
  const std::int64_t line_scales =
      swizzled ? round_up(index.blocks, ScaleIndex::tile_blocks) : index.blocks;
  if (!kernels::is_plain(out.options) || !out.vector_stores || !whole_words ||
      std::max(out.code_row_bytes, line_scales) * extent > kernels::whole_reach) {
    return {};
  }
  const auto steps = [&](std::int64_t to_lines, std::int64_t to_blocks, std::int64_t to_matrix) {
    return kernels::TileSteps{static_cast<std::uint32_t>(down ? to_blocks : to_lines),
                              static_cast<std::uint32_t>(down ? to_lines : to_blocks), to_matrix};
  };
  return kernels::WholeOutput{
      out.codes,
      steps(out.code_row_bytes * extent, extent * S::Format::bits / 8, lines * out.code_row_bytes),
      static_cast<std::uint32_t>(out.code_row_bytes),
      out.scales,
      steps(line_scales * extent, swizzled ? blocks * extent : blocks, index.size()),
      swizzled ? 0 : static_cast<std::uint32_t>(index.blocks),
      out.tensor_scale,
      out.options};
}

// What quantize_whole is told of the whole tiles of x. None if it is not for them.
template <class S>
std::optional<kernels::QuantizeWholeParameters> whole_parameters(
    DType dtype, Rounding rounding, const kernels::QuantizeTileParameters& p) {
  constexpr std::int64_t extent = kernels::tile_extent, element = 2;
  const bool with_rows = p.along_rows.codes != nullptr;
  if (rounding != Rounding::nearest || dtype == DType::float32 || p.square || !p.vector_loads ||
      p.along_columns.codes == nullptr || (with_rows && !kernels::whole_has_rows<S>)) {
    return {};
  }
  const std::int64_t tile_bytes = p.row_stride * element * extent;
  const dim3 grid = grid_of(1, p.rows / extent, p.batch);
  const auto columns = whole_output<S>(p.along_columns, p.columns, false);
  const auto rows = with_rows ? whole_output<S>(p.along_rows, p.rows, true)
                              : std::optional<kernels::WholeOutput>(kernels::WholeOutput{});
  if (!columns || !rows || tile_bytes < 0 || tile_bytes > kernels::whole_reach ||
      grid.y != p.rows / extent || grid.z != p.batch) {
    return {};
  }
  return kernels::QuantizeWholeParameters{
      p.x,
      {extent * element, static_cast<std::uint32_t>(tile_bytes), p.batch_stride * element},
      static_cast<std::uint32_t>(p.row_stride * element),
      *rows,
      *columns,
      p.backwards,
      p.fetching_blocks,
      p.follows};
}

template <class S>
void launch_whole(const char* function, DType dtype, const kernels::QuantizeWholeParameters& p,
                  dim3 grid, Stream stream) {
  const auto launch_with = [&](auto type, auto rows_too) {
    using T = decltype(type);
    const int bytes =
        even_bytes(function, grid, kernels::whole_blocks, kernels::TileMemory<S, T>::bytes(false));
    launch<Start::early>(function, kernels::quantize_whole_kernel<S, T, rows_too()>, grid,
                         kernels::tile_threads, bytes, stream, p);
  };
  const auto launch_of = [&](auto type) {
    if constexpr (kernels::whole_has_rows<S>) {
      if (p.along_rows.codes != nullptr) return launch_with(type, std::bool_constant<true>{});
    }
    launch_with(type, std::bool_constant<false>{});
  };
  dtype == DType::bfloat16 ? launch_of(bfloat16{}) : launch_of(float16{});
}

// Whether quantize_whole is what makes whole tiles, and not patches or the kernel for all.
template <class S>
bool whole_pays(const char* function, bool with_rows, std::int64_t tiles) {
  if (!with_rows || S::Format::is_integer) return true;
  namespace tuned = tuning::h200::quantize;
  if (S::Format::bits == 8) {
    return tiles <= tuned::most_whole_per_processor * processor_count(function);
  }
  return tiles >= tuned::least_whole;
}

// Whether `whole` tiles are quantized apart from those that are cut off.
template <class S>
bool are_apart(bool plain, bool with_rows, bool swizzled, std::int64_t whole) {
  constexpr bool is_nvfp4 = S::has_tensor_scale;
  namespace tuned = tuning::h200::quantize;
  if (!plain) return whole >= tuned::least_apart;
  if (!with_rows) return is_nvfp4 && whole >= tuned::least_apart_of_nvfp4;
  return S::Format::bits < 8 && swizzled &&
         whole >= (is_nvfp4 ? tuned::least_apart_both_of_nvfp4 : tuned::least_apart_both);
}

// Whole tiles have kernels of their own where these pay. Where tiles at the edges are cut off,
// launches of their own take those first: those at the side, then those below. They have few thread
// blocks that take long, and whole tiles are quantized beside them.
template <class S>
void launch_own_tile(const char* function, DType dtype, Rounding rounding,
                     const kernels::QuantizeTileParameters& p, Stream stream) {
  constexpr std::int64_t extent = kernels::tile_extent;
  const std::int64_t across = ceil_div(p.columns, extent), down = ceil_div(p.rows, extent);
  const std::int64_t whole_across = p.columns / extent, whole_down = p.rows / extent;
  const std::int64_t whole = whole_across * whole_down * p.batch;
  const bool are_cut = across > whole_across || down > whole_down;
  const bool with_rows = p.along_rows.codes != nullptr;
  const bool plain =
      rounding == Rounding::nearest && !p.square && p.along_columns.options.hadamard_size == 0;
  auto of_whole = plain && whole_pays<S>(function, with_rows, whole)
                      ? whole_parameters<S>(dtype, rounding, p)
                      : std::optional<kernels::QuantizeWholeParameters>();
  const auto work = patch_work<S>(dtype, rounding, p);
  const bool patches = !of_whole && work && are_for_patches<S>(*work, rounding, p);
  const auto is_swizzled = [](const kernels::TileOutput& out) {
    return out.codes == nullptr || out.scale_index.layout == ScaleLayout::swizzled;
  };
  const bool swizzled = is_swizzled(p.along_rows) && is_swizzled(p.along_columns);
  if ((!of_whole && !patches) || (are_cut && !are_apart<S>(plain, with_rows, swizzled, whole))) {
    return launch_tiles<S>(function, dtype, rounding, p, grid_of(across, down, p.batch), stream);
  }
  kernels::QuantizeTileParameters edge = p;
  if (across > whole_across) {
    edge.first_across = whole_across;
    launch_tiles<S>(function, dtype, rounding, edge, grid_of(1, down, p.batch), stream);
    edge.follows = kernels::Follows::beside;
  }
  if (down > whole_down) {
    edge.first_across = 0;
    edge.first_down = whole_down;
    launch_tiles<S>(function, dtype, rounding, edge, grid_of(whole_across, 1, p.batch), stream);
    edge.follows = kernels::Follows::beside;
  }
  if (of_whole) {
    of_whole->follows = edge.follows;
    const dim3 grid = grid_of(whole_across, whole_down, p.batch);
    return launch_whole<S>(function, dtype, *of_whole, grid, stream);
  }
  kernels::QuantizeTileParameters others = p;
  others.follows = edge.follows;
  launch_patches<S>(function, dtype, *work, rounding, others, stream);
}

}  // namespace mxkern::cuda
