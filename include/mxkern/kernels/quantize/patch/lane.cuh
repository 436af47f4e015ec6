// mxkern/kernels/quantize/patch/lane.cuh: what a lane of a patch kernel reads, and where it puts
// results.
#pragma once

#include <cuda_pipeline_primitives.h>

#include <cstdint>
#include <type_traits>

#include "mxkern/kernels/quantize/patch/elements.cuh"
#include "mxkern/kernels/quantize/patch/halves.cuh"
#include "mxkern/kernels/quantize/patch/tall_columns.cuh"

namespace mxkern::kernels {

template <class S, class Element, Rounding R, PatchWork W>
struct PatchLane : PatchElements<Element> {
  using PatchElements<Element>::raw;
  using T = Element;
  using Tall = TallPatch<T>;
  using Format = typename S::Format;
  static constexpr bool stays = patch_stays<S, R, W>;
  static constexpr bool exchanges = patch_exchanges<S, R, W>;
  using Memory = PatchMemory<S, stays, exchanges>;
  static constexpr int bits = Format::bits;
  static constexpr int blocks = tile_extent / S::block;
  static constexpr bool is_bfloat16 = std::is_same_v<T, bfloat16>;
  static constexpr bool in_pairs = pairs_in_bfloat16<S, R, T>;
  static constexpr bool in_lines =
      is_fp4<Format> && R == Rounding::nearest && !MXKERN_HAS_CVT_E2M1 && !in_pairs;
  static constexpr bool in_halves = patch_in_halves<S, T, R, W>();
  static constexpr bool is_tall = (in_halves && W != PatchWork::both) || exchanges;

  const QuantizeTileParameters& p;
  Memory& memory;
  std::uint32_t counter = 0;  // the logical index of the first element, in eights
  int row_scales = 0, column_scales = Memory::scale_bytes;  // where those of the tile begin

  __device__ __forceinline__ PatchLane(const QuantizeTileParameters& parameters, Memory& shared)
      : p(parameters), memory(shared) {}

  // From one row to the next.
  __device__ __forceinline__ std::uint32_t counter_step() const {
    return static_cast<std::uint32_t>(p.columns / Philox::elements);
  }

  // Begins to copy the patch of a tile; finish waits for it.
  __device__ __forceinline__ void begin(std::int64_t batch, std::int64_t row, std::int64_t column) {
    const T* from = static_cast<const T*>(p.x) + batch * p.batch_stride +
                    (row + patch_row()) * p.row_stride + column + patch_column();
#pragma unroll
    for (int i = 0; i < patch_extent; ++i) {
      if constexpr (stays) {
        __pipeline_memcpy_async(&memory.ahead[i][shared_lane(threadIdx.x)], from, 16);
      } else {
        raw[i] = load_octet(from);
      }
      from += p.row_stride;
    }
    if constexpr (stays) __pipeline_commit();
  }

  // Has the second-level cache read what begin will.
  __device__ __forceinline__ void fetch(std::int64_t batch, std::int64_t row,
                                        std::int64_t column) const {
    const T* from = static_cast<const T*>(p.x) + batch * p.batch_stride +
                    (row + patch_row()) * p.row_stride + column + patch_column();
#pragma unroll
    for (int i = 0; i < patch_extent; ++i) fetch_octet(from + i * p.row_stride);
  }

  __device__ __forceinline__ void finish() {
    if constexpr (!stays) return;
    __pipeline_wait_prior(0);
    if constexpr (is_tall) __syncwarp();  // for each other's octets
#pragma unroll
    for (int i = 0; i < patch_extent; ++i) {
      const uint4 own = memory.ahead[i][shared_lane(threadIdx.x)];
      raw[i] = {{own.x, own.y, own.z, own.w}};
    }
  }

  __device__ __forceinline__ void put_row(int i, const PatchCodes& codes) const {
    using Lines = typename Memory::RowLines;
    put_codes<bits>(
        memory.rows + Lines::offset(patch_row(), patch_column() / 8 * bits) + i * Lines::line_bytes,
        codes, patch_across() % 2 != 0);
  }

  __device__ __forceinline__ void put_column(int i, const PatchCodes& codes) const {
    using Lines = typename Memory::ColumnLines;
    put_codes<bits>(memory.columns + Lines::offset(patch_column(), patch_row() / 8 * bits) +
                        i * Lines::line_bytes,
                    codes, patch_down() % 2 != 0);
  }

  __device__ __forceinline__ void put_row_scale(int i, std::uint8_t byte) const {
    memory.scales[row_scales + (patch_row() + i) * blocks + patch_column() / S::block] = byte;
  }

  __device__ __forceinline__ void put_column_scale(int i, std::uint8_t byte) const {
    memory.scales[column_scales + (patch_column() + i) * blocks + patch_row() / S::block] = byte;
  }

  // Transforms a tall patch, of elements of a warp's patches, of whose rows these are the amax.
  __device__ __forceinline__ void transform_tall(Tall& tall,
                                                 const PackedAmax<T> (&rows)[2][4]) const {
    std::uint32_t largest = 0;
    if constexpr (is_bfloat16) {
      PackedAmax<T> all = rows[0][0];
#pragma unroll
      for (int i = 1; i < patch_extent; ++i) all = all.higher(rows[i / 4][i % 4]);
      largest = all.value();
    }
    if (__any_sync(full_warp, largest >= bits_of(Tall::sums_fit_below))) {
      tall.transform_any(p.column_signs);
    } else {
      tall.transform(p.column_factors);
    }
  }

  // Codes and scale of block k of the columns that a lane has of a tall patch.
  __device__ __forceinline__ void put_tall_column(int k, uint2 codes, std::uint8_t byte) const {
    using Lines = typename Memory::ColumnLines;
    const int column = Tall::column(), row = Tall::row();
    std::uint8_t* to = memory.columns + Lines::offset(column, row / 8 * bits);
    *reinterpret_cast<uint2*>(to + k * Lines::line_bytes) = codes;
    memory.scales[column_scales + (column + k) * blocks + row / S::block] = byte;
  }
};

}  // namespace mxkern::kernels
