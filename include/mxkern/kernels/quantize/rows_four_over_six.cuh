// mxkern/kernels/quantize/rows_four_over_six.cuh: NVFP4 along the rows where 4over6 chooses the
// scales, a whole block a thread.
#pragma once

#include <cstdint>

#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/kernels/quantize/four_over_six.cuh"
#include "mxkern/kernels/quantize/random_words.cuh"
#include "mxkern/kernels/device/row_grid.cuh"

namespace mxkern::kernels {

// The grid's octets are blocks here: a thread takes the same block of four rows.
struct QuantizeChosenParameters {
  RowGrid grid;
  const void* x;
  std::int64_t columns;  // whole blocks, each from 16 bytes on
  std::int64_t batch_stride, row_stride;
  std::uint8_t* codes;  // rows from 8 bytes on
  std::uint8_t* scales;
  ScaleIndex scale_index;
  float* tensor_scale;  // written by the first thread; nothing that `options` reads
  OctetOptions options;
  bool backwards;  // last rows first: they are what the pass before left in the cache
};

// A block's codes and the byte of its scale.
template <class S, class T, Rounding R, BlockError Kind>
__device__ __forceinline__ std::uint8_t quantize_chosen(const RawOctet<T> (&raw)[2],
                                                        const BlockScaler<S>& scaler,
                                                        RandomWords<R>& random, std::int64_t index,
                                                        Octet (&codes)[2]) {
  const std::uint32_t amax = packed_amax(raw[0]).higher(packed_amax(raw[1])).value();
  float magnitudes[2][8];
#pragma unroll
  for (int i = 0; i < 2; ++i) unpack(octet_magnitudes(raw[i]), magnitudes[i]);
  const BlockScale scale = better_scale<Kind>(magnitudes, amax, scaler, codes);
  const bool finite = float32::is_finite(amax);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if constexpr (R == Rounding::nearest) {
      codes[i] |= octet_signs(raw[i]);
    } else {
      const Philox4 words = random.octet(index + 8 * i);
      float v[8];
      unpack(raw[i], v);
      codes[i] = quantize_octet<S, R>(v, scale.multiplier, true, words);
    }
    if (!finite) codes[i] = poison_octet<typename S::Format>;
  }
  return finite ? scale.byte : S::ScaleFormat::nan_byte;
}

// One thread of the kernel: a block of the columns, at the rows that it is told.
template <class S, class T, Rounding R, BlockError Kind>
struct QuantizeChosen {
  const QuantizeChosenParameters& p;
  std::int64_t block, batch;

  // Four rows, 32 apart.
  struct Place {
    const T* x;
    std::uint8_t* codes;
    std::uint8_t* scales;
    std::int64_t scale_step, index;
    int rows, scale_rows;  // row i exists if i * 32 < rows, its scale if i * 32 < scale_rows
  };

  // The first four of a series of groups.
  __device__ __forceinline__ Place place_of(std::int64_t step) const {
    const std::int64_t series = p.backwards ? p.grid.series() - 1 - step : step;
    const RowPosition at(p.grid, series << p.grid.log2_depth);
    const RowScales scales(p.scale_index, at, block);
    const std::int64_t row = at.first_row(), row_of_all = batch * p.grid.rows + row;
    const bool swizzled = p.scale_index.layout == ScaleLayout::swizzled;
    const int rows = at.rows_left - at.row_in_tile;
    const bool inside = block < p.scale_index.blocks;
    Place place;
    place.x =
        static_cast<const T*>(p.x) + batch * p.batch_stride + row * p.row_stride + block * S::block;
    place.index = row_of_all * p.columns + block * S::block;
    place.codes = p.codes + place.index / 2;
    place.scales = p.scales + batch * p.scale_index.size() + scales.offset;
    place.scale_step = scales.step;
    place.rows = inside ? rows : 0;
    place.scale_rows = swizzled ? ScaleIndex::tile_rows : place.rows;
    return place;
  }

  // The next four rows of a series.
  __device__ __forceinline__ void move_on(Place& place) const {
    const int down = row_threads >> p.grid.log2_across;
    const bool swizzled = p.scale_index.layout == ScaleLayout::swizzled;
    place.x += down * p.row_stride;
    place.index += down * p.columns;
    place.codes += down * p.columns / 2;
    place.scales += swizzled ? std::int64_t{16} * down : down * p.scale_index.blocks;
    place.rows -= down;
    if (!swizzled) place.scale_rows -= down;
  }

  __device__ __forceinline__ void load(const Place& place, int i, RawOctet<T> (&raw)[2]) const {
    const T* x = place.x + i * row_spacing * p.row_stride;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      raw[k] = {};
      if (i * row_spacing < place.rows) raw[k] = load_octet(x + 8 * k);
    }
  }

  __device__ __forceinline__ void store(const Place& place, int i, const RawOctet<T> (&raw)[2],
                                        const BlockScaler<S>& scaler,
                                        RandomWords<R>& random) const {
    Octet codes[2];
    const std::int64_t step = i * row_spacing * p.columns;
    const std::uint8_t byte =
        quantize_chosen<S, T, R, Kind>(raw, scaler, random, place.index + step, codes);
    if (i * row_spacing < place.scale_rows) place.scales[i * place.scale_step] = byte;
    if (i * row_spacing < place.rows) {
      *reinterpret_cast<uint2*>(place.codes + step / 2) =
          make_uint2(static_cast<std::uint32_t>(codes[0]), static_cast<std::uint32_t>(codes[1]));
    }
  }
};

// Thread blocks a multiprocessor.
template <class T, Rounding R>
inline constexpr int chosen_blocks = sizeof(T) == 4 || R == Rounding::stochastic ? 2 : 4;

// A thread block of a RowGrid walks down through every so many groups of rows. Kind: that of the
// options; with code for both, squared errors take a tenth longer.
template <class S, class T, Rounding R, BlockError Kind>
__global__ void __launch_bounds__(row_threads, (chosen_blocks<T, R>))
    quantize_chosen_kernel(const __grid_constant__ QuantizeChosenParameters p) {
  using Thread = QuantizeChosen<S, T, R, Kind>;
  const int across = 1 << p.grid.log2_across;
  const std::int64_t block =
      static_cast<std::int64_t>(blockIdx.x) * across + (threadIdx.x & (across - 1));
  wait_for_kernels_ahead();
  let_dependents_start();
  const BlockScaler<S> scaler = block_scaler<S>(p.options, p.tensor_scale);
  __syncthreads();
  if (block >= p.grid.octets) return;
  RandomWords<R> random(p.options.keys, p.options.offset);
  for (std::int64_t batch = blockIdx.z; batch < p.grid.batch; batch += gridDim.z) {
    const Thread thread{p, block, batch};
    std::int64_t step = blockIdx.y;
    if (step >= p.grid.series()) return;
    typename Thread::Place place = thread.place_of(step);
    RawOctet<T> raw[2];
    thread.load(place, 0, raw);
    int left = 1 << p.grid.log2_depth;
#pragma unroll 1
    for (bool more = true; more;) {
      typename Thread::Place next = place;
      if (--left > 0) {
        thread.move_on(next);
      } else {
        step += gridDim.y;
        more = step < p.grid.series();
        if (more) next = thread.place_of(step);
        left = 1 << p.grid.log2_depth;
      }
#pragma unroll
      for (int i = 0; i < rows_per_thread; ++i) {
        RawOctet<T> ahead[2];
        const bool last = i + 1 == rows_per_thread;
        thread.load(last ? next : place, last ? 0 : i + 1, ahead);
        thread.store(place, i, raw, scaler, random);
#pragma unroll
        for (int k = 0; k < 2; ++k) raw[k] = ahead[k];
      }
      place = next;
    }
  }
}

}  // namespace mxkern::kernels
