// cuda/gemm/hopper/instances.cuh: what an instance file of the Hopper product instantiates.
#pragma once

#include "plan/hopper/split_k.h"
#include "cuda/runtime/launch.h"
#include "cuda/gemm/hopper/launch.h"
#include "cuda/operands/spread_gate.h"
#include "cuda/operands/tensor_map.h"
#include "mxkern/kernels/gemm/hopper/gemm.cuh"

namespace mxkern::cuda {

inline kernels::FinishParameters finish_parameters(const RowScaled& left, const RowScaled& right,
                                                   const CoreFinish& finish, bool is_transposed) {
  const Buffer& out = finish.out;
  kernels::FinishParameters p = {};
  put_finish(finish, p);
  p.left_exponents = left.exponents;
  p.right_exponents = right.exponents;
  p.left_exponents_batch = left.batch > 1 ? left.rows : 0;
  p.right_exponents_batch = right.batch > 1 ? right.rows : 0;
  p.out = out.data;
  p.dtype = out.dtype;
  p.rows = is_transposed ? out.shape.columns : out.shape.rows;
  p.columns = is_transposed ? out.shape.rows : out.shape.columns;
  p.row_stride = out.row_stride;
  p.batch_stride = out.batch_stride;
  p.stores_boxes = has_rows_of_pieces(out);
  return p;
}

// `group`: rows of a tile.
inline kernels::LateRows late_rows(const char* function, const RowScaled& x, int group) {
  const LateSource& late = x.late;
  kernels::LateRows p = {};
  if (late.codes == nullptr) return p;
  check(late.first.rows % group == 0 && group >= FirstRows::group, function, ": the first ",
        late.first.rows, " rows of an operand are ready; expected a multiple of ", group);
  p.codes = late.codes;
  p.scales = late.scales;
  p.out = const_cast<void*>(x.data);
  p.exponents = const_cast<std::int32_t*>(x.exponents);
  p.progress = late.first.progress;
  p.first = static_cast<int>(late.first.rows);
  p.rows = static_cast<int>(x.rows);
  p.columns = static_cast<int>(x.columns);
  p.word_step = word_step(late.scale_index);
  p.exponent = late.exponent;
  // Of stretches of columns.
  static_assert(kernels::LateRows::stretch == FirstRows::stretch);
  const std::int64_t ahead = late.first.columns > 0 ? late.first.columns : x.columns;
  check(ahead <= x.columns && (ahead == x.columns || ahead % FirstRows::stretch == 0), function,
        ": the first ", ahead, " columns of ", x.columns, " are ready; expected a multiple of ",
        FirstRows::stretch);
  const std::int64_t stretches =
      late.first.rows * FirstRows::stretches(late.first.columns, x.columns);
  constexpr std::int64_t all = std::int64_t{1} << 32;
  check(stretches * late.first.rows < all, function, ": too many rows have late columns");
  p.columns_ahead = static_cast<int>(ahead);
  p.stretches = static_cast<std::uint32_t>(stretches);
  p.inverse_of_first = static_cast<std::uint32_t>(ceil_div(all, std::int64_t{p.first}));
  return p;
}

template <class Config>
kernels::GemmSm90Parameters parameters_of(const ProductSm90& product) {
  const RowScaled &left = product.left, &right = product.right;
  const Buffer& out = product.finish.out;
  check(product.tile.rows == Config::rows && product.tile.columns == Config::columns &&
            product.tile.stages == Config::stages && product.work.unit == Config::step_unit,
        product.function, ": the plan's tile is not the kernel's");
  kernels::GemmSm90Parameters p = {};
  static_assert(Config::shares_left != (Config::columns > Config::rows));
  const auto down = static_cast<int>(ceil_div(left.rows, product.tile.cluster_rows()));
  const auto right_tiles = static_cast<int>(ceil_div(right.rows, product.tile.cluster_columns()));
  // In the order of the output's tiles, so that the same ones are divided, however they are
  // computed.
  p.order = {Config::is_transposed ? right_tiles : down,
             Config::is_transposed ? down : right_tiles,
             static_cast<int>(out.shape.batch),
             band_sm90(false, false),
             product.band,
             product.work.whole};
  p.parts = left.parts;
  p.work = product.work;
  if (p.work.divided() > 0) {
    auto* memory = static_cast<std::uint8_t*>(product.part_memory);
    p.part_sums.counters = reinterpret_cast<std::uint32_t*>(memory);
    p.part_sums.sums =
        reinterpret_cast<float4*>(memory + part_sums_offset(product.tile, product.work));
  }
  p.tile_rows = product.tile.height(left.rows);
  p.left_batched = left.batch > 1;
  p.right_batched = right.batch > 1;
  p.gate = spread_gate(product.gate, left, right);
  p.finish = finish_parameters(left, right, product.finish, Config::is_transposed);
  if constexpr (Config::decodes) {
    // Two parts may follow whole tiles.
    const std::int64_t tiles = ceil_div(p.work.whole, p.work.clusters) + 2;
    check(kernels::DecodedRows::have_room(tiles), product.function, ": ", tiles,
          " tiles and parts of a multiprocessor are decoded; expected less than ",
          kernels::DecodedRows::most_tiles - 1);
  }
  const ScaleIndex& index = left.scale_index;
  p.left_scales = {left.scales, left.rows, static_cast<std::uint32_t>(index.size()),
                   static_cast<int>(index.blocks), word_step(index)};
  return p;
}

// Rows that are late have counters for whole tiles. Clusters that would have no tile in the last
// turn make such rows instead.
template <class Config>
void put_late_rows(const ProductSm90& product, kernels::GemmSm90Parameters& p) {
  p.late[0] = late_rows(product.function, product.left, Config::rows);
  p.late[1] = late_rows(product.function, product.right, Config::columns);
  if (p.late[0].codes != nullptr) p.tile_rows = Config::rows;
  const bool are_late = p.late[0].codes != nullptr || p.late[1].codes != nullptr;
  if (are_late) p.work.clusters = p.work.fewest_clusters();
  if constexpr (Config::folds_late_rows) {
    p.late_side = p.late[0].codes != nullptr ? 0 : 1;
    p.late[0] = p.late[p.late_side];
  }
}

template <class Config>
CUtensorMap left_map(const ProductSm90& product, const kernels::GemmSm90Parameters& p) {
  return map_operand(product.function, product.left, p.tile_rows / Config::left_boxes,
                     Config::left_row_bytes);
}

template <class Config>
CUtensorMap right_map(const ProductSm90& product) {
  return map_operand(product.function, product.right, Config::right_box);
}

// Valid even where it is not used.
template <class Config>
CUtensorMap out_map(const ProductSm90& product, const kernels::GemmSm90Parameters& p) {
  return p.finish.stores_boxes && !Config::is_transposed
             ? map_output(product.function, product.finish.out, kernels::WarpChunk::rows)
             : left_map<Config>(product, p);
}

template <class Config, class... Parameters>
void launch_blocks(const ProductSm90& product, void (*kernel)(Parameters...), int clusters,
                   const Parameters&... parameters) {
  const int cluster = product.tile.cluster;
  launch_clusters(product.function, kernel, cluster, grid_of(clusters * cluster), Config::threads,
                  Config::shared_bytes, product.stream, parameters...);
}

template <class Config>
void launch_config(const ProductSm90& product) {
  kernels::GemmSm90Parameters p = parameters_of<Config>(product);
  put_late_rows<Config>(product, p);
  launch_blocks<Config>(product, kernels::gemm_sm90<Config>, product.work.clusters,
                        left_map<Config>(product, p), right_map<Config>(product),
                        out_map<Config>(product, p), p);
}

// Calls launch with the one of these configurations that `tile` names.
template <class... Configs, class Launch>
void launch_tile(const char* function, const TileSm90& tile, Launch&& launch) {
  const auto launch_if = [&]<class Config>(const Config* config) {
    if (tile.columns != Config::columns) return false;
    launch(config);
    return true;
  };
  const bool is_launched = (launch_if(static_cast<const Configs*>(nullptr)) || ...);
  check(is_launched, function, ": no kernel has the plan's tile");
}

// With the one of these configurations that product.tile names.
template <class... Configs>
void launch_tiles(const ProductSm90& product) {
  launch_tile<Configs...>(product.function, product.tile,
                          [&]<class Config>(const Config*) { launch_config<Config>(product); });
}

}  // namespace mxkern::cuda
