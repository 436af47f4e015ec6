// mxkern/kernels/quantize/small_rows.cuh: blocks along the rows of a small tensor, an octet a
// thread.
#pragma once

#include <cstdint>

#include "mxkern/kernels/quantize/rows.cuh"

namespace mxkern::kernels {

// A small tensor takes as long as its longest chain of instructions. So all of its octets are in
// flight at once, and nothing is shared: no table, no barrier, no second octet of a thread.
inline constexpr int small_threads = 128;

// Threads of the grid: one an octet of the rows that exist, up to where blocks are padded to, and
// behind them one for each word of the swizzled tiles that hold scales of rows that do not exist.
struct SmallGrid {
  std::int64_t octets;         // of a row
  std::int64_t all_octets;     // of all rows
  std::int64_t tiles_across;   // of scales, if there is padding
  std::int64_t padding_words;  // of the last row of tiles of all matrices

  static constexpr SmallGrid of(const RowGrid& grid, const ScaleIndex& index) {
    const bool is_padded =
        index.layout == ScaleLayout::swizzled && grid.rows % ScaleIndex::tile_rows != 0;
    const std::int64_t across = ceil_div(index.blocks, ScaleIndex::tile_blocks);
    return {grid.octets, grid.batch * grid.rows * grid.octets, across,
            is_padded ? grid.batch * across * (ScaleIndex::tile_bytes / 4) : 0};
  }

  // Padding starts with a warp of its own.
  MXKERN_HOST_DEVICE constexpr std::int64_t padding() const { return round_up(all_octets, 32); }
  constexpr std::int64_t threads() const { return padding() + padding_words; }
};

// Zeros to the scales of rows that do not exist, a word a thread in the order of memory.
__device__ __forceinline__ void clear_padding(const QuantizeRowsParameters& p,
                                              const SmallGrid& grid, std::uint32_t word) {
  constexpr std::uint32_t tile_words = ScaleIndex::tile_bytes / 4;
  const auto across = static_cast<std::uint32_t>(grid.tiles_across);
  const std::uint32_t tile = word / tile_words, within = word % tile_words;
  const std::uint32_t batch = p.grid.batch == 1 ? 0u : tile / across;
  const std::int64_t row_tile = p.grid.rows / ScaleIndex::tile_rows;
  const std::int64_t row = row_tile * ScaleIndex::tile_rows + within % 4 * 32 + within / 4;
  std::uint8_t* to = p.scales + batch * p.scale_index.size() +
                     (row_tile * across + tile - batch * across) * ScaleIndex::tile_bytes +
                     within * 4;
  wait_for_kernels_ahead();
  let_dependents_start();
  if (word >= grid.padding_words || row < p.grid.rows) return;
  if (reinterpret_cast<std::uintptr_t>(p.scales) % 4 == 0) {
    *reinterpret_cast<std::uint32_t*>(to) = 0;
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = 0;
  }
}

// Plain quantization to nearest of whole blocks, by vector loads and stores.
template <class S, class T>
__global__ void __launch_bounds__(small_threads)
    quantize_small_kernel(const __grid_constant__ QuantizeRowsParameters p,
                          const __grid_constant__ SmallGrid grid) {
  constexpr int lanes = S::block / 8;
  constexpr int octet_bytes = S::Format::bits;
  const std::uint32_t thread = blockIdx.x * small_threads + threadIdx.x;
  const auto padding = static_cast<std::uint32_t>(grid.padding());
  if (thread >= padding) return clear_padding(p, grid, thread - padding);
  const auto octets = static_cast<std::uint32_t>(grid.octets);
  const auto rows = static_cast<std::uint32_t>(p.grid.rows);
  const std::uint32_t line = thread / octets, octet = thread - line * octets;
  const std::uint32_t batch = p.grid.batch == 1 ? 0u : line / rows, row = line - batch * rows;
  const bool exists = thread < grid.all_octets;
  const bool inside = exists && octet * std::int64_t{8} < p.columns;
  const T* x = static_cast<const T*>(p.x) + batch * p.batch_stride + row * p.row_stride +
               octet * std::int64_t{8};
  std::uint8_t* codes = p.codes + line * p.code_row_bytes +
                        whole_codes_start<octet_bytes>(octet * std::int64_t{octet_bytes});
  std::uint8_t* scale =
      p.scales + batch * p.scale_index.size() + p.scale_index.offset(row, octet / lanes);
  if (inside) fetch_octet(x);
  wait_for_kernels_ahead();
  let_dependents_start();
  RawOctet<T> raw = {};
  if (inside) raw = load_octet(x);
  const BlockScaler<S> scaler = lone_scaler<S>(p.options, p.tensor_scale);
  const BlockScale own = scaler.alone(lanes_amax<lanes>(octet_amax(raw)));
  const Philox4 no_words = {};
  const Octet quantized =
      quantize_octet<S, Rounding::nearest>(raw, own.multiplier, scaler.saturates(), no_words);
  store_whole_codes<octet_bytes>(codes, quantized, inside);
  if (exists && octet % lanes == 0) *scale = own.byte;
}

}  // namespace mxkern::kernels
