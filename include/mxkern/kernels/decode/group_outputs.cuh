// mxkern/kernels/decode/group_outputs.cuh: from the sums of warps that share a tile to the outputs
// of a group's rows.
#pragma once

#include <cstdint>

#include "mxkern/kernels/decode/epilogue.cuh"
#include "mxkern/kernels/decode/group_tiles.cuh"
#include "mxkern/kernels/decode/multiply.cuh"
#include "mxkern/kernels/ptx/barrier.cuh"
#include "mxkern/numerics/swiglu.h"

namespace mxkern::kernels::few {

// A number as it is once it was stored.
__device__ __forceinline__ float as_stored(float value, DType dtype) {
  if (dtype == DType::float32) return value;
  const std::uint32_t pair = dtype == DType::float16 ? round_pair<float16>(value, 0.0f)
                                                     : round_pair<bfloat16>(value, 0.0f);
  const auto bits = static_cast<std::uint16_t>(pair);
  return dtype == DType::float16 ? to_float(float16{bits}) : to_float(bfloat16{bits});
}

// One function for all places that call it: its division and its exponential are long.
static __device__ __noinline__ float4 swiglu_of_four(float4 gate, float4 up, float alpha,
                                                     float limit, float offset) {
  return {swiglu(gate.x, up.x, alpha, limit, offset), swiglu(gate.y, up.y, alpha, limit, offset),
          swiglu(gate.z, up.z, alpha, limit, offset), swiglu(gate.w, up.w, alpha, limit, offset)};
}

// The warps that have the parts of K of a tile, or of two: of gates, and of what they let through.
// Each has room for its sums of eight rows; a thread finishes four rows of the weights of every so
// many.
template <class K>
struct Team {
  const DecodeParameters& p;
  int number;            // of the thread block
  int half, part, lane;  // half 1: of what gates let through
  std::uint32_t room;    // of the half's first warp
  std::uint32_t step;    // from a warp's room to the next one's

  // `prepare` reads these of a tile before its sums are there.
  const std::uint8_t* weights = nullptr;
  std::int64_t row = 0;
  std::uint32_t kinds = 0;
  float4 bias = {0.0f, 0.0f, 0.0f, 0.0f};

  __device__ __forceinline__ static int log2_warps(const DecodeParameters& p) {
    return p.log2_parts + (p.gated.tiles_behind > 0 ? 1 : 0);
  }
  // Number of this thread among those of its half.
  __device__ __forceinline__ int thread() const { return part * 32 + lane; }
  __device__ __forceinline__ int quad() const { return lane % 8; }

  __device__ __forceinline__ void wait() const {
    if (log2_warps(p) == 0) {
      __syncwarp();
    } else {
      ptx::barrier_sync(1 + number, 32 << log2_warps(p));
    }
  }

  __device__ __forceinline__ void prepare(const GroupTile& tile) {
    weights = p.weights + tile.group * p.weight_batch_bytes;
    row = (tile.down + half * p.gated.tiles_behind) * DecodeLayout::tile_rows + quad() * 4;
    kinds = 0;
    if (row >= p.layout.rows) return;
    kinds = *reinterpret_cast<const std::uint32_t*>(weights + p.kinds_offset + row);
    if (p.bias != nullptr) bias = load_bias<K>(p, tile.group, row);
  }

  __device__ __forceinline__ void finish(const GroupTile& tile,
                                         const float (&sums)[2][K::tokens / 8][4],
                                         float tensor_scale) const {
    const float left_scale = p.left_tensor_scale != nullptr ? *p.left_tensor_scale : 1.0f;
    const CommonFactor factor =
        quick_common_factor(p.alpha, left_scale, tensor_scale, group_factor<K>(p, tile.group));
    const bool is_plain = kinds == 0 && p.beta == 0.0f && row + 4 <= p.layout.rows;
#pragma unroll
    for (int eight = 0; eight < K::tokens / 8; ++eight) {
      if (eight * 8 >= tile.count) break;
      put_sums<K>(room + part * step, sums, eight, lane);
      wait();
      const int count = lower_of(tile.count - eight * 8, 8), first = tile.first + eight * 8;
      if (row < p.layout.rows) {
#pragma unroll 1
        for (int i = thread() / 8; i < count; i += 4 << p.log2_parts) {
          finish(tile.group, first + i, i, is_plain, factor);
        }
      }
      wait();
      if (p.gated.tiles_behind == 0) continue;
#pragma unroll 1
      for (int i = (half << p.log2_parts) * 4 + thread() / 8; i < count; i += 8 << p.log2_parts) {
        gate_halves(tile, first + i, i);
      }
      wait();  // the room is somebody's again
    }
  }

 private:
  // The shared memory in which the half's first warp has its sums of the i-th of eight rows.
  __device__ __forceinline__ std::uint32_t place(int i) const {
    return room + i * DecodeShape::sum_stride + quad() * 16;
  }

  __device__ __forceinline__ void finish(int group, int token, int i, bool is_plain,
                                         const CommonFactor& factor) const {
    float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
    for (int from = 0; from < 1 << p.log2_parts; ++from) add_sums(sum, place(i) + from * step);
    if (!p.gated.are_there) {
      const int size = p.out_dtype == DType::float32 ? 4 : 2;
      auto* const to = static_cast<std::uint8_t*>(p.out) + (token * p.out_row_stride + row) * size;
      finish_four<K>(p, weights, group, token, row, sum, kinds, is_plain, factor, bias, to);
      return;
    }
    const bool is_ordinary = complete_sums<K>(sum) && is_plain;
    float4 v = is_ordinary ? finish_ordinary(p, group, token, sum, factor, bias)
                           : finish_any<K>(p, weights, group, token, row, sum, kinds, factor, bias);
    v = {as_stored(v.x, p.out_dtype), as_stored(v.y, p.out_dtype), as_stored(v.z, p.out_dtype),
         as_stored(v.w, p.out_dtype)};
    if (p.gated.tiles_behind > 0) {
      write_shared(place(i), uint4{bits_of(v.x), bits_of(v.y), bits_of(v.z), bits_of(v.w)});
      return;
    }
    store_gated(token, row / 2, {v.x, v.z, 0.0f, 0.0f}, {v.y, v.w, 0.0f, 0.0f},
                lower_of<std::int64_t>((p.layout.rows - row) / 2, 2));
  }

  // Stores the SwiGLU of gates and of what they let through, which both halves of the team have
  // left where their sums were.
  __device__ __forceinline__ void gate_halves(const GroupTile& tile, int token, int i) const {
    const std::uint32_t apart = step << p.log2_parts, gates = place(i) - half * apart;
    const std::int64_t column = tile.down * DecodeLayout::tile_rows + quad() * 4;
    store_gated(token, column, four_at(gates), four_at(gates + apart), 4);
  }

  __device__ __forceinline__ void store_gated(int token, std::int64_t column, const float4& gate,
                                              const float4& up, std::int64_t count) const {
    const float4 v = swiglu_of_four(gate, up, p.gated.alpha, p.gated.limit, p.gated.offset);
    const float value[4] = {v.x, v.y, v.z, v.w};
    store_as(p, token * p.out_row_stride + column, value, count);
  }
};

}  // namespace mxkern::kernels::few
