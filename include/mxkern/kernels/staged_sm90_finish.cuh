// mxkern/kernels/staged_sm90_finish.cuh: from the sums of gemm_staged_sm90 to the outputs.
#pragma once

#include <cstdint>

#include "mxkern/kernels/few_sm90_rows.cuh"
#include "mxkern/kernels/ptx/mbarrier.cuh"
#include "mxkern/kernels/staged_sm90_rings.cuh"

namespace mxkern::kernels::staged {

// Of a cluster's thread blocks, whose sums are of parts of K, each finishes every so many groups of
// eight tokens. It gets the sums of these from all, its own among them, each in a place of its own,
// where a token has a row. A thread finishes four rows of the weights, always the same, of some of
// the tokens.
template <class K>
struct Finish : few::FourRows<K> {
  const Rings<K>& rings;
  int rank;
  int thread;

  using Rows = few::FourRows<K>;
  using Rows::kinds, Rows::factor, Rows::bias;
  using Rows::p, Rows::weights, Rows::batch, Rows::first_row, Rows::first_token;

  static constexpr int stride = K::Shape::sum_stride(K::row_tiles);
  static constexpr int quads = K::row_tiles * 8, lanes = 64;  // of threads, along the rows
  static constexpr int together = 4;                          // tokens

  __device__ __forceinline__ int quad() const { return thread % lanes; }
  __device__ __forceinline__ int tokens() const {
    return static_cast<int>(lower_of<std::int64_t>(p.tokens - first_token, K::tokens));
  }
  // Of this thread block, and which one is the i-th of them.
  __device__ __forceinline__ int count() const {
    const int ranks = 1 << p.log2_ranks, groups = tokens() / 8;
    return ((groups - rank + ranks - 1) >> p.log2_ranks) * 8 +
           ((groups & (ranks - 1)) == rank ? tokens() % 8 : 0);
  }
  __device__ __forceinline__ int token_of(int i) const {
    return ((i / 8 << p.log2_ranks) + rank) * 8 + i % 8;
  }
  __device__ __forceinline__ int place_bytes() const {
    return (K::tokens >> p.log2_ranks) * stride;
  }

  // Before the sums are there: what takes time to read.
  __device__ __forceinline__ void prepare() {
    const std::int64_t row = first_row + quad() * 4;
    kinds = 0;
    if (quad() < quads && row < p.layout.rows) {
      kinds = *reinterpret_cast<const std::uint32_t*>(weights + p.layout.kinds_offset() + row);
    }
  }

  // Once the kernel ahead is over: what it may have written.
  __device__ __forceinline__ void prepare_more() {
    factor = p.alpha;
    if (p.left_tensor_scale != nullptr) factor *= *p.left_tensor_scale;
    if (p.right_tensor_scale != nullptr) factor *= *p.right_tensor_scale;
    const std::int64_t row = first_row + quad() * 4;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      bias[j] = p.bias != nullptr && quad() < quads && row + j < p.layout.rows
                    ? few::load_as_float(p.bias, p.bias_dtype, row + j)
                    : 0.0f;
    }
  }

  // One thread, before this thread block is done with its rings: what the others will send.
  __device__ __forceinline__ void expect() const {
    few::arrive_expecting(rings.received(), count() * (quads * 16) * ((1 << p.log2_ranks) - 1));
  }

  // To the thread blocks that finish them, once these are done with their rings.
  __device__ __forceinline__ void put(const float (&sums)[K::sums]) const {
    const int lane = thread % 32, all = tokens();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int group = thread / 32 * 2 + half;
      const int owner = group & ((1 << p.log2_ranks) - 1);
      const int at = (group >> p.log2_ranks) * 8 + lane / 4;
      const std::uint32_t to = rings.decoded() + rank * place_bytes() + at * stride + lane % 4 * 16;
      if (group * 8 + lane / 4 >= all) continue;
      if (owner == rank) {
#pragma unroll
        for (int i = 0; i < K::sums / 8; ++i) {
          few::write_shared(to + i * 64, four(sums, i, half));
        }
      } else {
        const std::uint32_t there = ptx::address_in_block(to, owner);
        const std::uint32_t barrier = ptx::address_in_block(rings.received(), owner);
#pragma unroll
        for (int i = 0; i < K::sums / 8; ++i)
          few::send(there + i * 64, barrier, four(sums, i, half));
      }
    }
    __syncwarp();
    few::sync_threads<K::threads>();
  }

  template <class Out>
  __device__ __forceinline__ void run() const {
    if (p.log2_ranks > 0) few::wait(rings.received(), 0);
    if (kinds == 0 && p.beta == 0.0f) {
      store_all<Out, together, true>();
    } else {
      store_all<Out, 1, false>();
    }
  }

 private:
  __device__ __forceinline__ static uint4 four(const float (&sums)[K::sums], int i, int half) {
    const float* v = sums + i * 8 + half * 2;
    return {bits_of(v[0]), bits_of(v[1]), bits_of(v[4]), bits_of(v[5])};
  }

  // What the loops need is in variables here, since the compiler would read it from the parameters
  // again after each access to shared memory.
  template <class Out, int Together, bool IsPlain>
  __device__ __forceinline__ void store_all() const {
    constexpr int step = K::threads / lanes;
    const int ranks = 1 << p.log2_ranks, end = count();
    const std::int64_t row = first_row + quad() * 4, left = p.layout.rows - row;
    const std::int64_t out_stride = p.out_row_stride;
    const std::int64_t out = batch * p.out_batch_stride + first_token * out_stride + row;
    const std::uint32_t received = rings.decoded() + quad() * 16, place = place_bytes();
    const bool has_bias = p.bias != nullptr;
    void* const data = p.out;
    if (quad() >= quads || left <= 0) return;
#pragma unroll 1
    for (int i = thread / lanes; i < end; i += Together * step) {
      float4 sum[Together] = {};
#pragma unroll 1
      for (int r = 0; r < ranks; ++r) {
#pragma unroll
        for (int k = 0; k < Together; ++k) {
          const int at = i + k * step;
          const float4 v = few::read_sums(received + r * place + (at < end ? at : i) * stride);
          sum[k].x += v.x, sum[k].y += v.y, sum[k].z += v.z, sum[k].w += v.w;
        }
      }
#pragma unroll
      for (int k = 0; k < Together; ++k) {
        if (i + k * step >= end) break;
        const int at = token_of(i + k * step);
        float value[4] = {sum[k].x, sum[k].y, sum[k].z, sum[k].w};
#pragma unroll
        for (int j = 0; j < 4; ++j) value[j] *= few::sum_factor<K>();
        if constexpr (!IsPlain) this->replace_special(value, at, row, left);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          value[j] *= factor;
          if constexpr (!IsPlain) {
            if (p.beta != 0.0f && j < left) {
              value[j] +=
                  p.beta * to_float(static_cast<const Out*>(data)[out + at * out_stride + j]);
            }
          }
          if (has_bias) value[j] += bias[j];
        }
        few::store_four<Out>(data, out + at * out_stride, value, left);
      }
    }
  }
};

}  // namespace mxkern::kernels::staged
