// mxkern/kernels/few_sm90_finish.cuh: from the sums of warpgroups to the outputs.
#pragma once

#include <cstdint>

#include "mxkern/kernels/few_finish.cuh"
#include "mxkern/kernels/few_sm90_shape.h"

namespace mxkern::kernels::few {

// Of the threads that finish: others of the thread block have nothing to do here.
template <int Threads>
__device__ __forceinline__ void sync_threads() {
  asm volatile("bar.sync 1, %0;" ::"n"(Threads) : "memory");
}

__device__ __forceinline__ float4 read_cluster(std::uint32_t address, std::uint32_t rank) {
  float4 v;
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n"
      "}\n"
      : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
      : "r"(address), "r"(rank));
  return v;
}

// Sums lie in shared memory, parts of K one after the other, a row of them for each token. A thread
// finishes four rows of the weights, always the same, of every so many tokens.
template <class K>
struct FinishSm90 {
  const FewParameters& p;
  const std::uint8_t* weights;
  std::uint32_t sums;  // of part 0
  std::int64_t batch, first_row, first_token;
  int rank;
  int thread;
  std::uint32_t kinds;  // of the four rows

  __device__ __forceinline__ int log2_quads() const { return 31 - __clz(p.row_tiles * 8); }
  __device__ __forceinline__ std::uint32_t part_bytes() const {
    return FewSm90Shape::sum_bytes(K::tokens, p.row_tiles);
  }

  // Before the sums are there: what takes time to read.
  __device__ __forceinline__ void prepare() {
    const int quad = thread & ((1 << log2_quads()) - 1);
    const std::int64_t row = first_row + quad * 4;
    kinds = 0;
    if (row < p.layout.rows) {
      kinds = *reinterpret_cast<const std::uint32_t*>(weights + p.layout.kinds_offset() + row);
    }
  }

  __device__ __forceinline__ void put(const float (&values)[K::tokens / 2], int part, int slab,
                                      int lane) const {
    const std::uint32_t stride = FewSm90Shape::sum_stride(p.row_tiles);
    const std::uint32_t to =
        sums + part * part_bytes() + (slab * 16 + lane / 4) * 4 + lane % 4 * 2 * stride;
#pragma unroll
    for (int i = 0; i < K::tokens / 2; ++i) {
      asm volatile(
          "st.shared.f32 [%0], %1;" ::"r"(to + (i / 4 * 8 + i % 2) * stride + i % 4 / 2 * 32),
          "f"(values[i])
          : "memory");
    }
  }

  // Each thread block of the cluster finishes a share of the tokens.
  template <class Out>
  __device__ __forceinline__ void run() const {
    const int quad = thread & ((1 << log2_quads()) - 1), step = K::threads >> log2_quads();
    const std::int64_t row = first_row + quad * 4, count = p.layout.rows - row;
    const int tokens = static_cast<int>(lower_of<std::int64_t>(p.tokens - first_token, K::tokens));
    const int begin = tokens * rank >> p.log2_ranks, end = tokens * (rank + 1) >> p.log2_ranks;
    if (count <= 0) return;
    float factor = p.alpha, bias[4] = {};
    if (p.left_tensor_scale != nullptr) factor *= *p.left_tensor_scale;
    if (p.right_tensor_scale != nullptr) factor *= *p.right_tensor_scale;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (p.bias != nullptr && j < count) bias[j] = load_as_float(p.bias, p.bias_dtype, row + j);
    }
    const std::uint32_t stride = FewSm90Shape::sum_stride(p.row_tiles);
    constexpr int together = K::tokens <= 64 ? 2 : 4;  // for what registers allow
#pragma unroll 1
    for (int token = begin + (thread >> log2_quads()); token < end; token += together * step) {
      float4 sum[together] = {};
#pragma unroll 1
      for (int r = 0; r < 1 << p.log2_ranks; ++r) {
        float4 of_rank[together] = {};
#pragma unroll 1
        for (int part = 0; part < 1 << p.log2_parts; ++part) {
          const std::uint32_t from = sums + part * part_bytes() + token * stride + quad * 16;
          float4 v[together];
#pragma unroll
          for (int i = 0; i < together; ++i) {
            // Of tokens that there are not, what lies there.
            const int at = token + i * step < end ? i * step : 0;
            v[i] = read_cluster(from + at * stride, static_cast<std::uint32_t>(r));
          }
#pragma unroll
          for (int i = 0; i < together; ++i) {
            of_rank[i].x += v[i].x, of_rank[i].y += v[i].y;
            of_rank[i].z += v[i].z, of_rank[i].w += v[i].w;
          }
        }
#pragma unroll
        for (int i = 0; i < together; ++i) {
          sum[i].x += of_rank[i].x, sum[i].y += of_rank[i].y;
          sum[i].z += of_rank[i].z, sum[i].w += of_rank[i].w;
        }
      }
#pragma unroll
      for (int i = 0; i < together; ++i) {
        if (token + i * step < end) {
          store<Out>(sum[i], first_token + token + i * step, row, count, factor, bias);
        }
      }
    }
  }

 private:
  template <class Out>
  __device__ __forceinline__ void store(const float4& sum, std::int64_t token, std::int64_t row,
                                        std::int64_t count, float factor,
                                        const float (&bias)[4]) const {
    float value[4] = {sum.x, sum.y, sum.z, sum.w};
    const std::int64_t at = batch * p.out_batch_stride + token * p.out_row_stride + row;
#pragma unroll
    for (int j = 0; j < 4; ++j) value[j] *= sum_factor<K>();
    if (kinds != 0) {
#pragma unroll 1
      for (int j = 0; j < 4; ++j) {
        const auto kind = static_cast<RowKind>(kinds >> (8 * j) & 0xFFu);
        if (kind == RowKind::ordinary || j >= count) continue;
        float other = float_of(float32::nan_bits);
        if (kind == RowKind::special) {
          other = multiply_special<K>(
              p, weights, p.x + batch * p.x_batch_bytes + token * p.x_row_bytes, row + j);
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) value[k] = k == j ? other : value[k];
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      value[j] *= factor;
      if (p.beta != 0.0f && j < count) {
        value[j] += p.beta * to_float(static_cast<const Out*>(p.out)[at + j]);
      }
      if (p.bias != nullptr) value[j] += bias[j];
    }
    store_four<Out>(p.out, at, value, count);
  }
};

}  // namespace mxkern::kernels::few
