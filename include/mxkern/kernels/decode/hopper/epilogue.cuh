// mxkern/kernels/decode/hopper/epilogue.cuh: from the sums of warpgroups to the outputs.
#pragma once

#include <cstdint>

#include "mxkern/kernels/decode/output_tile.cuh"
#include "mxkern/kernels/decode/hopper/rows.cuh"
#include "mxkern/kernels/ptx/mbarrier.cuh"
#include "mxkern/kernels/decode/hopper/shared_memory.h"

namespace mxkern::kernels::few {

// Sums lie in shared memory, parts of K one after the other, a row of them for each token. A thread
// finishes four rows of the weights, always the same, of every so many tokens. Each thread block of
// a cluster finishes a share of the tokens; the others send it their sums of these.
template <class K>
struct FinishSm90 : FourRows<K> {
  std::uint32_t sums;     // of part 0
  std::uint32_t barrier;  // of what the others send
  int rank;
  int thread;

  using Rows = FourRows<K>;
  using Rows::kinds, Rows::factor, Rows::bias;
  using Rows::p, Rows::weights, Rows::batch, Rows::first_row, Rows::first_token, Rows::count;

  static constexpr int together = K::tokens <= 32 ? 2 : 4;  // tokens, for what registers allow

  __device__ __forceinline__ int log2_quads() const { return 31 - __clz(p.row_tiles * 8); }
  __device__ __forceinline__ int quad() const { return thread & ((1 << log2_quads()) - 1); }
  __device__ __forceinline__ std::uint32_t part_bytes() const {
    return DecodeSm90Shape::sum_bytes(K::tokens, p.row_tiles);
  }
  // Of a thread block of the cluster.
  __device__ __forceinline__ int first_of(int rank_of) const {
    return tokens_at<K>(p, first_token, count) * rank_of >> p.log2_ranks;
  }
  __device__ __forceinline__ std::uint32_t inbox(int index) const {
    return sums + (part_bytes() << p.log2_parts) +
           index * ((K::tokens >> p.log2_ranks) * p.row_tiles * 128) + quad() * 16;
  }

  // Before the sums are there: what takes time to read.
  __device__ __forceinline__ void prepare() {
    const std::int64_t row = first_row + quad() * 4;
    kinds = 0;
    if (row < p.layout.rows) {
      kinds = *reinterpret_cast<const std::uint32_t*>(weights + p.kinds_offset + row);
    }
  }

  // Once the kernel ahead is over: what it may have written.
  __device__ __forceinline__ void prepare_more() {
    const std::int64_t row = first_row + quad() * 4;
    this->take_tops(row);
    if (p.bias == nullptr) return;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (row + j < p.layout.rows) {
        bias[j] = load_as_float(p.bias, p.bias_dtype, first_bias<K>(p, batch) + row + j);
      }
    }
  }

  // One thread, before this thread block is done with its rings.
  __device__ __forceinline__ void expect() const {
    const int tokens = first_of(rank + 1) - first_of(rank);
    ptx::mbarrier_expect(barrier, ((1 << p.log2_ranks) - 1) * tokens * p.row_tiles * 128);
  }

  __device__ __forceinline__ void put(const float (&values)[K::tokens / 2], int part, int slab,
                                      int lane) const {
    const std::uint32_t stride = DecodeSm90Shape::sum_stride(p.row_tiles);
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

  // To the others of the cluster, once these are done with their rings.
  __device__ __forceinline__ void send() const {
    const Walk walk(*this);
    const int ranks = 1 << p.log2_ranks, row_bytes = p.row_tiles * 128;
#pragma unroll 1
    for (int other = 0; other < ranks; ++other) {
      if (other == rank) continue;
      const int begin = first_of(other), end = first_of(other + 1);
      const std::uint32_t to = inbox(rank - (rank > other ? 1 : 0)) - begin * row_bytes;
#pragma unroll 1
      for (int token = begin + walk.first; token < end; token += together * walk.step) {
        float4 sum[together];
        add_parts(sum, walk, token, end);
#pragma unroll
        for (int i = 0; i < together; ++i) {
          const int at = token + i * walk.step;
          if (at < end) send_cluster(to + at * row_bytes, barrier, other, sum[i]);
        }
      }
    }
  }

  template <class Out>
  __device__ __forceinline__ void run() const {
    if (p.log2_ranks > 0) ptx::mbarrier_wait(barrier, 0);
    // All of four outputs in one store, and nothing but a factor and a bias.
    const std::int64_t row = first_row + quad() * 4;
    const std::int64_t first = batch * p.out_batch_stride + first_token * p.out_row_stride + row;
    const bool is_aligned = (reinterpret_cast<std::uintptr_t>(static_cast<Out*>(p.out) + first) |
                             p.out_row_stride * sizeof(Out)) %
                                (4 * sizeof(Out)) ==
                            0;
    if (kinds == 0 && p.beta == 0.0f && row + 4 <= p.layout.rows && is_aligned) {
      store_all<Out, together, true>();
    } else {
      store_all<Out, 1, false>();
    }
  }

 private:
  template <class Out, int Together, bool IsPlain>
  __device__ __forceinline__ void store_all() const {
    const Walk walk(*this);
    const int begin = first_of(rank), end = first_of(rank + 1);
    const int ranks = 1 << p.log2_ranks, row_bytes = p.row_tiles * 128, own = rank;
    const std::int64_t row = first_row + quad() * 4, count = p.layout.rows - row;
    const std::int64_t out_stride = p.out_row_stride;
    const std::int64_t out = batch * p.out_batch_stride + first_token * out_stride + row;
    const std::uint32_t received = inbox(0) - begin * row_bytes, sender = inbox(1) - inbox(0);
    const bool has_bias = p.bias != nullptr;
    Out* const data = static_cast<Out*>(p.out);
    if (count <= 0) return;
#pragma unroll 1
    for (int token = begin + walk.first; token < end; token += Together * walk.step) {
      float4 sum[Together] = {}, part[Together];
#pragma unroll 1
      for (int r = 0; r < ranks; ++r) {
        if (r == own) {
          add_parts(part, walk, token, end);
        } else {
          const std::uint32_t from = received + (r - (r > own ? 1 : 0)) * sender;
#pragma unroll
          for (int i = 0; i < Together; ++i) {
            const int at = token + i * walk.step;
            part[i] = read_sums(from + (at < end ? at : token) * row_bytes);
          }
        }
#pragma unroll
        for (int i = 0; i < Together; ++i) add(sum[i], part[i]);
      }
#pragma unroll
      for (int i = 0; i < Together; ++i) {
        const int at = token + i * walk.step;
        if (at >= end) break;
        float value[4] = {sum[i].x, sum[i].y, sum[i].z, sum[i].w};
        this->template finish<IsPlain>(value, at, row, count);
        if constexpr (!IsPlain) {
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            if (p.beta != 0.0f && j < count) {
              value[j] += p.beta * to_float(data[out + at * out_stride + j]);
            }
          }
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          if (has_bias) value[j] += bias[j];
        }
        Out* to = data + (out + at * out_stride);
        if constexpr (IsPlain) {
          store_whole(to, value);
        } else {
          store_four(to, value, count);
        }
      }
    }
  }

  // How a thread goes through the tokens. What the loops need is here, since the compiler would
  // read it from the parameters again after each access to shared memory.
  struct Walk {
    int first, step, parts;
    std::uint32_t sums, stride, part_bytes;

    __device__ __forceinline__ explicit Walk(const FinishSm90& f)
        : first(f.thread >> f.log2_quads()),
          step(K::threads >> f.log2_quads()),
          parts(1 << f.p.log2_parts),
          sums(f.sums + f.quad() * 16),
          stride(DecodeSm90Shape::sum_stride(f.p.row_tiles)),
          part_bytes(f.part_bytes()) {}
  };

  __device__ __forceinline__ static void add(float4& sum, const float4& v) {
    sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
  }

  // This thread block's sums of tokens a step apart; of those from `end` on the first one's.
  template <int Together>
  __device__ __forceinline__ static void add_parts(float4 (&sum)[Together], const Walk& walk,
                                                   int token, int end) {
    std::uint32_t from[Together];
#pragma unroll
    for (int i = 0; i < Together; ++i) {
      const int at = token + i * walk.step;
      from[i] = walk.sums + (at < end ? at : token) * walk.stride;
      sum[i] = read_sums(from[i]);
    }
#pragma unroll 1
    for (int part = 1; part < walk.parts; ++part) {
#pragma unroll
      for (int i = 0; i < Together; ++i) add(sum[i], read_sums(from[i] += walk.part_bytes));
    }
  }
};

}  // namespace mxkern::kernels::few
