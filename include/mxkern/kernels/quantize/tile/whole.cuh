// mxkern/kernels/quantize/tile/whole.cuh: whole tiles of 16-bit elements, each of a thread block:
// blocks along the columns alone, or along both directions.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/kernels/quantize/columns.cuh"
#include "mxkern/kernels/quantize/four_octets.cuh"
#include "mxkern/kernels/quantize/tile/copy.cuh"

namespace mxkern::kernels {

// Bytes from tile to tile: across x, down x, and from matrix to matrix.
struct TileSteps {
  std::uint32_t across, down;
  std::int64_t batch;
};

// One direction of the result.
struct WholeOutput {
  std::uint8_t* codes;
  TileSteps code_steps;
  std::uint32_t code_row_bytes;
  std::uint8_t* scales;
  TileSteps scale_steps;
  std::uint32_t scale_row_bytes;  // 0: swizzled
  float* tensor_scale;
  OctetOptions options;
};

// The rows of a tile of x lie within so many bytes, and so do its lines of codes and of scales.
inline constexpr std::int64_t whole_reach = 0xFFFFFFFF;

// What depends on the layout, worked out by the host: a thread has little to do before its first
// load.
struct QuantizeWholeParameters {
  const void* x;
  TileSteps x_steps;
  std::uint32_t x_row_bytes;
  WholeOutput along_rows, along_columns;
  bool backwards;
  int fetching_blocks;  // see QuantizeTileParameters
  Follows follows;
};

// The tile of this thread block.
struct WholeTile {
  std::uint32_t across, down, batch;

  template <class Byte>
  __device__ __forceinline__ Byte* in(Byte* first, const TileSteps& steps) const {
    Byte* at = first + std::uint64_t{across} * steps.across + std::uint64_t{down} * steps.down;
    if (batch != 0) at += batch * steps.batch;
    return at;
  }
};

// What the copies of a tile to shared memory have in common: 16 bytes of a row a thread, which lie
// there in the order of the threads.
template <class T>
struct WholeCopy {
  static constexpr int width = 16;
  static constexpr int threads_a_row = tile_extent * static_cast<int>(sizeof(T)) / width;
  static constexpr int rows_at_once = tile_threads / threads_a_row;
  static constexpr int count = tile_extent / rows_at_once;
  const unsigned char* from;
  std::uint32_t step;

  __device__ __forceinline__ WholeCopy(const QuantizeWholeParameters& p, const WholeTile& tile)
      : from(tile.in(static_cast<const unsigned char*>(p.x), p.x_steps) +
             threadIdx.x / threads_a_row * p.x_row_bytes + threadIdx.x % threads_a_row * width),
        step(rows_at_once * p.x_row_bytes) {}

  // Has the second-level cache read the tile.
  __device__ __forceinline__ void fetch() const {
#pragma unroll
    for (int i = 0; i < count; ++i) fetch_octet(from + i * step);
  }

  __device__ __forceinline__ void begin(T* elements) const {
    unsigned char* const to = reinterpret_cast<unsigned char*>(elements) + threadIdx.x * width;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      __pipeline_memcpy_async(to + i * tile_threads * width, from + i * step, width);
    }
    __pipeline_commit();
  }
};

// A warp works NVFP4's tensor scale and multipliers out for all; the caller synchronizes before it
// calls whole_scaler.
template <class S>
__device__ __forceinline__ void find_whole_scales(const WholeOutput& out, TensorScale& tensor) {
  if constexpr (S::has_tensor_scale) {
    constexpr int warp = 32;
    if (threadIdx.x >= warp) return;
    const BlockScaler<S> scaler = lone_scaler<S>(out.options, out.tensor_scale);
    scaler.template fill<warp>();
    if (threadIdx.x == 0) tensor = scaler.tensor;
  }
}

template <class S>
__device__ __forceinline__ BlockScaler<S> whole_scaler(const WholeOutput& out,
                                                       const TensorScale& tensor) {
  if constexpr (S::has_tensor_scale) {
    return {tensor, 0};
  } else {
    return {out.options.rule};
  }
}

// Blocks along the rows of a tile: 16 lanes take a row, four rows a thread at a time.
template <class S, class T>
__device__ __forceinline__ void quantize_whole_rows(const WholeOutput& out, const WholeTile& tile,
                                                    const T* elements,
                                                    const BlockScaler<S>& scaler) {
  constexpr unsigned octet_bytes = S::Format::bits, lanes = S::block / 8;
  constexpr unsigned rows_at_once = tile_threads / tile_octets;
  const bool swizzled = out.scale_row_bytes == 0;
  const unsigned octet = threadIdx.x % tile_octets, first = threadIdx.x / tile_octets;
  const unsigned block = octet / lanes, line_bytes = swizzled ? 16u : out.scale_row_bytes;
  FourWholeRows four = {};
  four.codes = tile.in(out.codes, out.code_steps) + first * out.code_row_bytes +
               whole_codes_start<octet_bytes>(octet * octet_bytes);
  four.code_step = row_spacing * out.code_row_bytes;
  four.scale_step = swizzled ? 4u : row_spacing * out.scale_row_bytes;
  four.scales = tile.in(out.scales, out.scale_steps) + first * line_bytes +
                (swizzled ? block / 4 * ScaleIndex::tile_bytes + block % 4 : block) +
                SharedScales<S>::row(0) * four.scale_step;
  RandomWords<Rounding::nearest> none(out.options.keys, out.options.offset);
#pragma unroll
  for (unsigned k = 0; k < row_spacing / rows_at_once; ++k) {
    RawOctet<T> raw[rows_per_thread];
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) {
      const unsigned row = first + k * rows_at_once + i * row_spacing;
      raw[i] = shared_octet(elements + row * tile_extent + octet * 8);
    }
    PackedAmax<T> octets[rows_per_thread];
    packed_amax(raw, octets);
    quantize_four_whole_rows<S, T, Rounding::nearest>(raw, SharedScales<S>(octets, scaler), scaler,
                                                      none, four);
    four.codes += rows_at_once * out.code_row_bytes;
    four.scales += rows_at_once * line_bytes;
  }
}

// Copies the scales of a tile out, [128 lines][blocks].
template <class S>
__device__ __forceinline__ void store_whole_scales(const WholeOutput& out, const WholeTile& tile,
                                                   const std::uint8_t* scales) {
  constexpr unsigned blocks = tile_extent / S::block;
  std::uint8_t* const to = tile.in(out.scales, out.scale_steps);
  if (out.scale_row_bytes == 0) {
    // One or two tiles of the layout, one behind the other.
    if (threadIdx.x >= tile_extent * blocks / 4) return;
    const unsigned line = threadIdx.x % 4 * 32 + threadIdx.x % tile_extent / 4;
    reinterpret_cast<std::uint32_t*>(to)[threadIdx.x] = *reinterpret_cast<const std::uint32_t*>(
        scales + line * blocks + threadIdx.x / tile_extent * 4);
  } else if (threadIdx.x < tile_extent) {
    using Line = std::conditional_t<blocks == 8, uint2, std::uint32_t>;
    *reinterpret_cast<Line*>(to + threadIdx.x * out.scale_row_bytes) =
        reinterpret_cast<const Line*>(scales)[threadIdx.x];
  }
}

inline constexpr int whole_blocks = 4;  // a multiprocessor

// Whether both directions can be made here. NVFP4's are faster in halves.
template <class S>
inline constexpr bool whole_has_rows = !S::has_tensor_scale;

// Rounds to nearest, without a transform or a choice of scales.
template <class S, class T, bool WithRows>
__global__ void __launch_bounds__(tile_threads, whole_blocks)
    quantize_whole_kernel(const __grid_constant__ QuantizeWholeParameters p) {
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ TensorScale tensor;
  const TileMemory<S, T> memory{shared};
  const WholeTile tile = {blockIdx.x, p.backwards ? gridDim.y - 1 - blockIdx.y : blockIdx.y,
                          blockIdx.z};
  const WholeCopy<T> copy(p, tile);
  if (is_one_of_the_first(p.fetching_blocks)) copy.fetch();
  wait_once(p.follows);
  copy.begin(memory.elements());
  // While the tile comes.
  find_whole_scales<S>(p.along_columns, tensor);
  finish_tile();
  if constexpr (WithRows) {
    quantize_whole_rows<S>(p.along_rows, tile, memory.elements(),
                           whole_scaler<S>(p.along_rows, tensor));
  }
  const BlockScaler<S> scaler = whole_scaler<S>(p.along_columns, tensor);
#pragma unroll
  for (int part = 0; part < tile_segment / S::block; ++part) {
    quantize_column_blocks<S>(memory.elements(), segment_row() + part * S::block, scaler,
                              memory.scales(), memory.lines());
  }
  __syncthreads();
  store_whole_lines<S>(tile.in(p.along_columns.codes, p.along_columns.code_steps),
                       p.along_columns.code_row_bytes, memory.lines());
  store_whole_scales<S>(p.along_columns, tile, memory.scales());
}

}  // namespace mxkern::kernels
