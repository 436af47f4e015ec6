// mxkern/kernels/dequantize/dequantize.cuh: codes and scales to elements, an octet a thread and
// row.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/kernels/device/row_grid.cuh"
#include "mxkern/kernels/device/vector_io.cuh"
#include "mxkern/numerics/block_scale.h"
#include "mxkern/numerics/codec_ptx.cuh"
#include "mxkern/tensor/scale_layout.h"

namespace mxkern::kernels {

struct DequantizeParameters {
  RowGrid grid;
  const std::uint8_t* codes;
  std::int64_t code_row_bytes;
  const std::uint8_t* scales;
  ScaleIndex scale_index;
  const float* tensor_scale;
  void* out;
  std::int64_t columns;
  std::int64_t batch_stride, row_stride;
  int fetching_blocks;  // how many thread blocks ask for codes while the kernel ahead still runs
  bool vector_loads;    // rows of codes start on the size of an octet (6 bits an element: on 4)
  bool vector_stores;   // every octet of out starts on 16 bytes
};

// The value of a scale byte.
template <class S>
__device__ __forceinline__ float fast_scale(std::uint8_t byte) {
#if MXKERN_HAS_CVT_E4M3
  if constexpr (std::is_same_v<typename S::ScaleFormat, UE4M3>) {
    const float value = ptx::widen_pair<E4M3>(byte & UE4M3::nan_byte).x;
    return value == value ? value : float_of(float32::nan_bits);
  }
#endif
  return S::ScaleFormat::decode(byte);
}

// Eight values under one scale, in T. Every NaN that comes out is the same one.
template <class S, class T>
__device__ __forceinline__ RawOctet<T> dequantize_octet(Octet octet, std::uint8_t byte,
                                                        float tensor_scale) {
  using Format = typename S::Format;
  const float scale = fast_scale<S>(byte);
  float v[8];
  decode_octet<Format>(octet, v);
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    v[k] = __fmul_rn(v[k], scale);
    if constexpr (S::has_tensor_scale) v[k] = __fmul_rn(v[k], tensor_scale);
  }
  const bool nan_is_rare = scale == scale && !has_nan_code<Format>(octet) &&
                           (!S::has_tensor_scale || float32::is_finite(bits_of(tensor_scale)));
  if (nan_is_rare) return pack<T>(v);
  RawOctet<T> raw = {};
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    set_element(raw, k, from_float<T>(v[k] == v[k] ? v[k] : float_of(float32::nan_bits)));
  }
  return raw;
}

// Whether an octet can take the short way: four and six bits to bfloat16, where the product of code
// and block scale is exact.
template <class S, class T>
inline constexpr bool exact_in_bfloat16 =
    (is_fp4<typename S::Format> ||
     is_fp6<typename S::Format>)&&MXKERN_HAS_CVT_E4M3&& std::is_same_v<T, bfloat16>;

// dequantize_octet for that, where neither the scale nor the tensor's scale is a NaN or an Inf.
template <class S>
__device__ __forceinline__ RawOctet<bfloat16> dequantize_exact_octet(Octet octet, std::uint8_t byte,
                                                                     float tensor_scale) {
  const std::uint32_t half = bits_of(fast_scale<S>(byte)) >> 16;
  const std::uint32_t pair = half * 0x00010001u;
  const auto scale = *reinterpret_cast<const __nv_bfloat162*>(&pair);
  RawOctet<bfloat16> raw;
  decode_bfloat16_octet<typename S::Format>(octet, raw.word);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __nv_bfloat162 product =
        __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&raw.word[i]), scale);
    raw.word[i] = *reinterpret_cast<const std::uint32_t*>(&product);
  }
  if constexpr (!S::has_tensor_scale) return raw;
  float v[8];
  unpack(raw, v);
#pragma unroll
  for (int k = 0; k < 8; ++k) v[k] = __fmul_rn(v[k], tensor_scale);
  return pack<bfloat16>(v);
}

// One thread of the kernel.
template <class S, class T>
struct Dequantize {
  static constexpr int octet_bytes = S::Format::bits;

  const DequantizeParameters& p;
  float tensor_scale;
  std::int64_t octet_index;

  // Four rows, any of which may be missing or ragged.
  __device__ void guarded(std::int64_t batch, const RowPosition& at) const {
    const std::int64_t column = octet_index * 8;
    const std::int64_t start = octet_index * octet_bytes;
    const std::int64_t row = at.first_row();
    const RowScales place(p.scale_index, at, column / S::block);
    const std::uint8_t* codes = p.codes + (batch * p.grid.rows + row) * p.code_row_bytes;
    const std::uint8_t* scales = p.scales + batch * p.scale_index.size() + place.offset;
    T* out = static_cast<T*>(p.out) + batch * p.batch_stride + row * p.row_stride + column;
    if (column >= p.columns) return;
#pragma unroll 1
    for (int i = 0; i < rows_per_thread; ++i) {
      if (!at.has_row(i)) return;
      const Octet octet = load_codes<octet_bytes>(
          codes + i * row_spacing * p.code_row_bytes + start, p.code_row_bytes - start);
      const RawOctet<T> raw = dequantize_octet<S, T>(octet, scales[i * place.step], tensor_scale);
      store_elements(out + i * row_spacing * p.row_stride, raw, p.columns - column);
    }
  }

  // Has the second-level cache read the first of what `whole` will.
  __device__ void fetch(std::int64_t batch, const RowPosition& at) const {
    const std::int64_t row = at.first_row();
    const RowScales place(p.scale_index, at, octet_index * 8 / S::block);
    const std::uint8_t* codes =
        p.codes + (batch * p.grid.rows + row) * p.code_row_bytes + octet_index * octet_bytes;
    const std::uint8_t* scales = p.scales + batch * p.scale_index.size() + place.offset;
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) {
      fetch_octet(codes + i * row_spacing * p.code_row_bytes);
      fetch_octet(scales + i * place.step);
    }
  }

  // Four rows that are all there, with vector loads and stores.
  __device__ __forceinline__ void whole(std::int64_t batch, const RowPosition& at) const {
    const std::int64_t row = at.first_row();
    const RowScales place(p.scale_index, at, octet_index * 8 / S::block);
    const std::uint8_t* codes =
        p.codes + (batch * p.grid.rows + row) * p.code_row_bytes + octet_index * octet_bytes;
    const std::uint8_t* scales = p.scales + batch * p.scale_index.size() + place.offset;
    T* out = static_cast<T*>(p.out) + batch * p.batch_stride + row * p.row_stride + octet_index * 8;
    four_rows(codes, row_spacing * p.code_row_bytes, scales, place.step, out,
              row_spacing * p.row_stride);
  }

  // With IsCut only those of the `left` rows from the first one on; for others the last one is
  // loaded again.
  template <bool IsCut = false>
  __device__ __forceinline__ void four_rows(const std::uint8_t* codes, std::int64_t code_step,
                                            const std::uint8_t* scales, std::int64_t scale_step,
                                            T* out, std::int64_t out_step, int left = 0) const {
    const auto exists = [&](int i) { return !IsCut || i * row_spacing < left; };
    Octet octets[rows_per_thread];
    std::uint8_t bytes[rows_per_thread];
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) {
      const int row = IsCut ? lower_of(i, (left - 1) / row_spacing) : i;
      octets[i] = load_whole_codes<octet_bytes>(codes + row * code_step);
      bytes[i] = scales[row * scale_step];
    }
    if constexpr (exact_in_bfloat16<S, T>) {
      bool plain = !S::has_tensor_scale || float32::is_finite(bits_of(tensor_scale));
#pragma unroll
      for (int i = 0; i < rows_per_thread; ++i) {
        constexpr std::uint8_t nan = S::ScaleFormat::nan_byte;
        plain = plain && (bytes[i] & nan) != nan;
      }
      if (plain) {
#pragma unroll
        for (int i = 0; i < rows_per_thread; ++i) {
          if (!exists(i)) continue;
          store_octet(out + i * out_step,
                      dequantize_exact_octet<S>(octets[i], bytes[i], tensor_scale));
        }
        return;
      }
    }
    // Where the last octet of a row is without another one beside it, its lane has none either.
    const bool are_pairs = sizeof(T) == 4 && (!IsCut || p.grid.octets % 2 == 0);
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) {
      if (!are_pairs && !exists(i)) continue;
      const RawOctet<T> raw = dequantize_octet<S, T>(octets[i], bytes[i], tensor_scale);
      if (are_pairs) {
        store_octet_beside(out + i * out_step, raw, exists(i));
      } else {
        store_octet(out + i * out_step, raw);
      }
    }
  }
};

// Where things lie in whole tiles, for addresses of few instructions. Of a matrix.
struct WholeTiles {
  std::uint32_t code_row_bytes, out_row;                        // of a row; out_row in elements
  std::uint32_t scale_tile, scale_row, scale_four, scale_step;  // of 128 rows, one, four blocks, 32
  std::int64_t scales;

  static WholeTiles of(const DequantizeParameters& p) {
    const ScaleIndex& index = p.scale_index;
    const bool swizzled = index.layout == ScaleLayout::swizzled;
    const auto blocks = static_cast<std::uint32_t>(index.blocks);
    WholeTiles tiles = {};
    tiles.code_row_bytes = static_cast<std::uint32_t>(p.code_row_bytes);
    tiles.out_row = static_cast<std::uint32_t>(p.row_stride);
    tiles.scale_tile =
        swizzled ? (blocks + 3) / 4 * ScaleIndex::tile_bytes : blocks * ScaleIndex::tile_rows;
    tiles.scale_row = swizzled ? 16 : blocks;
    tiles.scale_four = swizzled ? ScaleIndex::tile_bytes : 4;
    tiles.scale_step = swizzled ? 4 : row_spacing * blocks;
    tiles.scales = index.size();
    return tiles;
  }
};

// Whole octets at aligned addresses, with vector loads and stores. Where no tile is cut off every
// thread has four rows. Code for the rest, and addresses of any tensor, would take 5 to 8 % of the
// time. Rows and their bytes have 31 bits.
template <class S, class T, bool AreCut>
__global__ void __launch_bounds__(row_threads, 4)
    dequantize_whole_kernel(const __grid_constant__ DequantizeParameters p,
                            const __grid_constant__ WholeTiles tiles) {
  constexpr std::uint32_t block_octets = S::block / 8;
  const std::uint32_t across = 1u << p.grid.log2_across, log2_groups = p.grid.log2_across - 3;
  const std::uint32_t octet = blockIdx.x * across + (threadIdx.x & (across - 1));
  const std::uint32_t tile = blockIdx.y >> log2_groups;
  const std::uint32_t row_in_tile =
      (blockIdx.y & ((1u << log2_groups) - 1)) * (row_threads >> p.grid.log2_across) +
      (threadIdx.x >> p.grid.log2_across);
  const std::uint32_t row = tile * ScaleIndex::tile_rows + row_in_tile;
  const std::uint32_t block = octet / block_octets;
  const auto wide = [](std::uint32_t a, std::uint32_t b) { return std::uint64_t{a} * b; };
  const std::uint8_t* codes = p.codes + wide(row, tiles.code_row_bytes) +
                              octet * std::uint64_t{Dequantize<S, T>::octet_bytes};
  const std::uint8_t* scales = p.scales + wide(tile, tiles.scale_tile) +
                               (row_in_tile * tiles.scale_row + block / 4 * tiles.scale_four) +
                               block % 4;
  T* out = static_cast<T*>(p.out) + wide(row, tiles.out_row) + octet * std::uint64_t{8};
  if (blockIdx.z != 0) {
    codes += blockIdx.z * (p.grid.rows * p.code_row_bytes);
    scales += blockIdx.z * tiles.scales;
    out += blockIdx.z * p.batch_stride;
  }
  const std::int64_t code_step = wide(row_spacing, tiles.code_row_bytes);
  int left = ScaleIndex::tile_rows;
  if constexpr (AreCut) {
    left = static_cast<int>(static_cast<std::uint32_t>(p.grid.rows) - row);
    if (octet >= static_cast<std::uint32_t>(p.grid.octets)) left = 0;
  }
  if (is_one_of_the_first(p.fetching_blocks)) {
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) {
      if (!AreCut || i * row_spacing < left) fetch_octet(codes + i * code_step);
    }
    if (!AreCut || left > 0) fetch_octet(scales);
  }
  wait_for_kernels_ahead();
  let_dependents_start();
  if (AreCut && left <= 0) return;
  Dequantize<S, T> thread{p, 1.0f, octet};
  if constexpr (S::has_tensor_scale) thread.tensor_scale = *p.tensor_scale;
  thread.template four_rows<AreCut>(codes, code_step, scales, tiles.scale_step, out,
                                    wide(row_spacing, tiles.out_row), left);
}

// All others.
template <class S, class T>
__global__ void __launch_bounds__(row_threads, sizeof(T) == 4 ? 4 : 5)
    dequantize_kernel(const __grid_constant__ DequantizeParameters p) {
  const int across = 1 << p.grid.log2_across;
  Dequantize<S, T> thread{
      p, 1.0f, static_cast<std::int64_t>(blockIdx.x) * across + (threadIdx.x & (across - 1))};
  const bool whole_columns =
      p.vector_loads && p.vector_stores && (blockIdx.x + std::int64_t{1}) * across * 8 <= p.columns;
  if (is_one_of_the_first(p.fetching_blocks) && whole_columns) {
    const RowPosition at(p.grid, blockIdx.y);
    if (at.rows_left == ScaleIndex::tile_rows) thread.fetch(0, at);
  }
  wait_for_kernels_ahead();
  let_dependents_start();
  if constexpr (S::has_tensor_scale) thread.tensor_scale = *p.tensor_scale;
  for (std::int64_t batch = blockIdx.z; batch < p.grid.batch; batch += gridDim.z) {
    for (std::int64_t group = blockIdx.y; group < p.grid.series(); group += gridDim.y) {
      const RowPosition at(p.grid, group);
      if (whole_columns && at.rows_left == ScaleIndex::tile_rows) {
        thread.whole(batch, at);
        continue;
      }
      thread.guarded(batch, at);
    }
  }
}

inline constexpr int small_dequantize_threads = 128;

// The same of a small tensor, an octet a thread, all of them at once: with vector loads and stores,
// and columns in whole octets.
template <class S, class T>
__global__ void __launch_bounds__(small_dequantize_threads)
    dequantize_small_kernel(const __grid_constant__ DequantizeParameters p) {
  const std::uint32_t thread = blockIdx.x * small_dequantize_threads + threadIdx.x;
  const auto octets = static_cast<std::uint32_t>(p.columns / 8);
  const auto rows = static_cast<std::uint32_t>(p.grid.rows);
  const std::uint32_t line = thread / octets, octet = thread - line * octets;
  const std::uint32_t batch = p.grid.batch == 1 ? 0u : line / rows, row = line - batch * rows;
  const bool inside = line < p.grid.batch * p.grid.rows;
  const std::uint8_t* codes =
      p.codes + line * p.code_row_bytes + octet * std::int64_t{S::Format::bits};
  const std::uint8_t* scale =
      p.scales + batch * p.scale_index.size() + p.scale_index.offset(row, octet * 8 / S::block);
  T* out = static_cast<T*>(p.out) + batch * p.batch_stride + row * p.row_stride +
           octet * std::int64_t{8};
  if (inside) {
    fetch_octet(codes);
    fetch_octet(scale);
  }
  wait_for_kernels_ahead();
  let_dependents_start();
  if (!inside) return;
  float tensor_scale = 1.0f;
  if constexpr (S::has_tensor_scale) tensor_scale = *p.tensor_scale;
  store_octet(
      out, dequantize_octet<S, T>(load_whole_codes<S::Format::bits>(codes), *scale, tensor_scale));
}

}  // namespace mxkern::kernels
