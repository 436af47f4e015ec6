// mxkern/kernels/quantize/rows.cuh: blocks along the rows, straight from memory to codes.
#pragma once

#include <cstdint>

#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/kernels/quantize/four_octets.cuh"
#include "mxkern/kernels/device/row_grid.cuh"

namespace mxkern::kernels {

struct QuantizeRowsParameters {
  RowGrid grid;
  const void* x;
  std::int64_t columns;
  std::int64_t batch_stride, row_stride;
  std::uint8_t* codes;
  std::int64_t code_row_bytes;
  std::uint8_t* scales;
  ScaleIndex scale_index;
  float* tensor_scale;  // NVFP4: written by the first thread; nothing that `options` reads
  OctetOptions options;
  bool vector_loads;   // every octet of x starts on 16 bytes
  bool vector_stores;  // rows of codes start and end on 8 bytes (4 bits an element: on 4)
  bool fetches;        // the first loads are asked for while the kernel ahead still runs
  bool backwards;      // last rows first: they are what the pass before left in the cache
};

// What a kernel along rows is compiled for. The code of what is rare costs registers, and the
// instruction cache, even where it does not run.
enum class RowsWork {
  whole,  // plain, and all tiles are whole, with vector loads and stores
  once,   // the same with a group of rows, or a series, for each thread block: fewer registers, no
          // loads ahead
  plain,  // no Hadamard transform and no 4over6
  any
};

// One thread of the kernel: an octet of the columns, at the rows that it is told.
template <class S, class T, Rounding R, RowsWork W>
struct QuantizeRows {
  static constexpr int lanes = S::block / 8;
  static constexpr int octet_bytes = S::Format::bits;

  const QuantizeRowsParameters& p;
  std::int64_t octet_index;

  // Four rows, any of which may be missing or ragged.
  __device__ void guarded(std::int64_t batch, const RowPosition& at, bool whole_codes,
                          const BlockScaler<S>& scaler) const {
    const bool swizzled = p.scale_index.layout == ScaleLayout::swizzled;
    const std::int64_t column = octet_index * 8;
    const std::int64_t block = octet_index / lanes;
    const std::int64_t blocks_end =
        swizzled ? round_up(p.scale_index.blocks, ScaleIndex::tile_blocks) : p.scale_index.blocks;
    const std::int64_t row = at.first_row();
    const T* x = static_cast<const T*>(p.x) + batch * p.batch_stride + row * p.row_stride + column;
    RawOctet<T> raw[rows_per_thread];
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) {
      raw[i] = load_guarded(x + i * row_spacing * p.row_stride,
                            at.has_row(i) ? p.columns - column : 0, p.vector_loads);
    }
    const RowScales scales(p.scale_index, at, block);
    FourRows four;
    four.codes = p.codes + (batch * p.grid.rows + row) * p.code_row_bytes;
    four.code_step = row_spacing * p.code_row_bytes;
    four.code_start = octet_index * octet_bytes;
    four.code_row_bytes = p.code_row_bytes;
    four.whole = whole_codes;
    four.rows = at.rows_left - at.row_in_tile;
    four.scales = p.scales + batch * p.scale_index.size() + scales.offset;
    four.scale_step = scales.step;
    four.scale_rows = block >= blocks_end ? 0 : swizzled ? ScaleIndex::tile_rows : four.rows;
    four.index = (batch * p.grid.rows + row) * p.columns + column;
    four.index_step = row_spacing * p.columns;
    const OctetOptions options = known_options<W != RowsWork::any>(p.options);
    PackedAmax<T> octets[rows_per_thread];
    four_amax(raw, options, column < p.columns, octets);
    RandomWords<R> random(p.options.keys, p.options.offset);
    quantize_four_rows<S, T, R>(raw, SharedScales<S>(octets, scaler), scaler,
                                S::has_tensor_scale && options.four_over_six, random, four);
  }

  // Where four rows lie that are all there, with vector loads and stores.
  struct Place {
    const T* x;
    FourWholeRows out;
  };

  __device__ __forceinline__ Place place_of(std::int64_t batch, std::int64_t group) const {
    const RowPosition at(p.grid, group);
    const std::int64_t row = at.first_row();
    const std::int64_t row_of_all = batch * p.grid.rows + row;
    const RowScales scales(p.scale_index, at, octet_index / lanes);
    Place place;
    place.x =
        static_cast<const T*>(p.x) + batch * p.batch_stride + row * p.row_stride + octet_index * 8;
    place.out.codes = p.codes + row_of_all * p.code_row_bytes +
                      whole_codes_start<octet_bytes>(octet_index * octet_bytes);
    place.out.code_step = row_spacing * p.code_row_bytes;
    place.out.scales = p.scales + batch * p.scale_index.size() + scales.offset +
                       SharedScales<S>::row(0) * scales.step;
    place.out.scale_step = scales.step;
    place.out.counter =
        static_cast<std::uint32_t>((row_of_all * p.columns + octet_index * 8) / Philox::elements);
    place.out.counter_step = static_cast<std::uint32_t>(p.columns / Philox::elements * row_spacing);
    return place;
  }

  // The next four rows of a series.
  __device__ __forceinline__ void move_on(Place& place) const {
    const int down = row_threads >> p.grid.log2_across;
    place.x += down * p.row_stride;
    place.out.codes += down * p.code_row_bytes;
    place.out.scales += p.scale_index.layout == ScaleLayout::swizzled ? std::int64_t{16} * down
                                                                      : down * p.scale_index.blocks;
    place.out.counter += static_cast<std::uint32_t>(p.columns / Philox::elements * down);
  }

  // Asks for what load will read. What a kernel ahead has yet to write there is none the worse: the
  // cache that it comes to is that of all multiprocessors.
  __device__ __forceinline__ void fetch(const Place& place) const {
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) fetch_octet(place.x + i * row_spacing * p.row_stride);
  }

  __device__ __forceinline__ void load(const Place& place, RawOctet<T> (&raw)[4]) const {
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) {
      raw[i] = load_octet(place.x + i * row_spacing * p.row_stride);
    }
  }

  // All series of whole tiles that this thread block has, the next loads ahead of the work.
  // `begin` is called before the first loads, `scaler_once` while they are on their way.
  template <class Begin, class Scaler>
  __device__ __forceinline__ void whole(std::int64_t batch, const Begin& begin,
                                        Scaler& scaler_once) const {
    const OctetOptions options = known_options<W != RowsWork::any>(p.options);
    const std::int64_t end = p.grid.whole_series();
    std::int64_t step = blockIdx.y;
    while (p.backwards && step < p.grid.series() - end) step += gridDim.y;
    const std::int64_t last = p.backwards ? p.grid.series() : end;
    if (step >= last) return;
    const auto group_of = [&](std::int64_t i) {
      return (p.backwards ? p.grid.series() - 1 - i : i) << p.grid.log2_depth;
    };
    Place place = place_of(batch, group_of(step));
    RawOctet<T> raw[rows_per_thread];
    begin(place);
    RandomWords<R> random(p.options.keys, p.options.offset);
    load(place, raw);
    const BlockScaler<S> scaler = scaler_once();
    int left = 1 << p.grid.log2_depth;
    bool more = true;
    while (more) {
      Place next = place;
      RawOctet<T> ahead[rows_per_thread];
      if (--left > 0) {
        move_on(next);
      } else {
        step += gridDim.y;
        more = step < last;
        if (more) next = place_of(batch, group_of(step));
        left = 1 << p.grid.log2_depth;
      }
      if (more) load(next, ahead);
      PackedAmax<T> octets[rows_per_thread];
      four_amax(raw, options, true, octets);
      quantize_four_whole_rows<S, T, R>(raw, SharedScales<S>(octets, scaler), scaler, random,
                                        place.out);
      place = next;
#pragma unroll
      for (int i = 0; i < rows_per_thread; ++i) raw[i] = ahead[i];
    }
  }

  // The one group of whole rows that this thread block has, or, with random words, the series.
  __device__ __forceinline__ void once() const {
    constexpr bool is_series = R == Rounding::stochastic;
    const std::int64_t series = p.backwards ? p.grid.series() - 1 - blockIdx.y : blockIdx.y;
    Place place = place_of(blockIdx.z, is_series ? series << p.grid.log2_depth : series);
    wait_for_kernels_ahead();
    let_dependents_start();
    RawOctet<T> raw[rows_per_thread];
    load(place, raw);
    const BlockScaler<S> scaler = lone_scaler<S>(p.options, p.tensor_scale);
    RandomWords<R> random(p.options.keys, p.options.offset);
    for (int left = is_series ? 1 << p.grid.log2_depth : 1;;) {
      PackedAmax<T> octets[rows_per_thread];
      packed_amax(raw, octets);
      quantize_four_whole_rows<S, T, R>(raw, SharedScales<S>(octets, WithoutTable<S>{scaler}),
                                        scaler, random, place.out);
      if (--left == 0) return;
      move_on(place);
      load(place, raw);
    }
  }
};

// Thread blocks a multiprocessor: what measured fastest on an H200. Fewer registers than the loads
// of two series take, or the words of four octets, would spill.
template <class S, class T, Rounding R, RowsWork W>
inline constexpr int rows_blocks = [] {
  if (W == RowsWork::once && R == Rounding::stochastic) return sizeof(T) == 4 ? 3 : 4;
  if (W == RowsWork::once) return sizeof(T) == 4 ? 3 : S::Format::bits == 8 ? 8 : 5;
  if (sizeof(T) == 4 || R == Rounding::stochastic) return 2;
  return S::Format::bits == 8 || W == RowsWork::whole ? 4 : 3;
}();

// Whether thread blocks with one group of rows each are ever faster than those that stay. NVFP4's
// for 16 bits wait for instructions, and a table saves some.
template <class S, class T>
inline constexpr bool once_pays = !S::has_tensor_scale || sizeof(T) == 4;

// Whether a thread block stays for many series instead of one. Faster where there is more to
// compute for a byte, so that few thread blocks fit and the last of many rounds would be missed.
template <class S, Rounding R>
inline constexpr bool rows_stay = S::Format::bits < 8 && R == Rounding::nearest;

// The scaler of a thread block, made when it is asked for first, by all threads together.
template <class S>
struct RowsScaler {
  const QuantizeRowsParameters& p;
  BlockScaler<S> made = {};
  bool is_made = false;

  __device__ __forceinline__ const BlockScaler<S>& operator()() {
    if (!is_made) {
      made = block_scaler<S>(p.options, p.tensor_scale);
      __syncthreads();
      is_made = true;
    }
    return made;
  }
};

template <class S>
requires(!S::has_tensor_scale) struct RowsScaler<S> {
  const QuantizeRowsParameters& p;

  __device__ __forceinline__ BlockScaler<S> operator()() const { return {p.options.rule}; }
};

template <class S, class T, Rounding R, RowsWork W>
__global__ void __launch_bounds__(row_threads, (rows_blocks<S, T, R, W>))
    quantize_rows_kernel(const __grid_constant__ QuantizeRowsParameters p) {
  using Thread = QuantizeRows<S, T, R, W>;
  const int across = 1 << p.grid.log2_across;
  const Thread thread{
      p, static_cast<std::int64_t>(blockIdx.x) * across + (threadIdx.x & (across - 1))};
  if constexpr (W == RowsWork::once) return thread.once();
  RowsScaler<S> scaler{p};
  if constexpr (W == RowsWork::whole) {
    for (std::int64_t batch = blockIdx.z; batch < p.grid.batch; batch += gridDim.z) {
      const auto begin = [&](const typename Thread::Place& first) {
        if (batch != blockIdx.z) return;
        if (p.fetches) thread.fetch(first);
        wait_for_kernels_ahead();
        let_dependents_start();
      };
      thread.whole(batch, begin, scaler);
    }
    return;
  }
  const bool whole_codes =
      p.vector_stores && (p.columns % S::block == 0 || octets_are_whole<Thread::octet_bytes>(
                                                           p.code_row_bytes, blockIdx.x, across));
  const bool whole_columns = p.vector_loads && whole_codes &&
                             (blockIdx.x + std::int64_t{1}) * across * 8 <= p.columns &&
                             !p.options.four_over_six &&
                             (R == Rounding::nearest ||
                              words_are_whole(p.grid.batch * p.grid.rows * p.columns, p.columns));
  wait_for_kernels_ahead();
  let_dependents_start();
  for (std::int64_t batch = blockIdx.z; batch < p.grid.batch; batch += gridDim.z) {
    if (whole_columns)
      thread.whole(
          batch, [](const auto&) {}, scaler);
    for (std::int64_t step = blockIdx.y; step < p.grid.series(); step += gridDim.y) {
      const std::int64_t series = p.backwards ? p.grid.series() - 1 - step : step;
      if (whole_columns && series < p.grid.whole_series()) continue;
      for (int i = 0; i < 1 << p.grid.log2_depth; ++i) {
        const std::int64_t group = (series << p.grid.log2_depth) + i;
        thread.guarded(batch, RowPosition(p.grid, group), whole_codes, scaler());
      }
    }
  }
}

}  // namespace mxkern::kernels
