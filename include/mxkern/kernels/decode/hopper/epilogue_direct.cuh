// mxkern/kernels/decode/hopper/epilogue_direct.cuh: from the sums of warpgroups to ordinary
// outputs, without leaving registers but for what others add up.
//
// A thread has its sums as the instruction leaves them: of each eight tokens two adjacent ones, in
// rows eight apart. Warpgroups with parts of K finish a share of the tokens each, thread blocks of
// a cluster a share of that; who has the same rows and tokens has them in the same thread, so that
// sums are sent as they are, 16 bytes at a time.
#pragma once

#include <cstdint>

#include "mxkern/kernels/decode/outputs.cuh"
#include "mxkern/kernels/decode/parameters.h"
#include "mxkern/kernels/decode/output_tile.cuh"
#include "mxkern/kernels/decode/hopper/rows.cuh"
#include "mxkern/kernels/decode/hopper/shared_memory.h"
#include "mxkern/kernels/ptx/mbarrier.cuh"
#include "mxkern/kernels/ptx/movmatrix.cuh"

namespace mxkern::kernels::few {

// Whether the outputs of rows [first, first + count) are whole, and no more than sums times a
// factor, and a bias.
__device__ __forceinline__ bool are_plain_outputs(const DecodeParameters& p, std::int64_t first,
                                                  int count) {
  const std::uint64_t places = reinterpret_cast<std::uintptr_t>(p.out) / 2 |
                               static_cast<std::uint64_t>(p.out_row_stride | p.out_batch_stride);
  const bool is_aligned = p.out_dtype == DType::float32 || places % 4 == 0;
  return p.beta == 0.0f && p.x_exponents == nullptr && is_aligned && first + count <= p.layout.rows;
}

// Where a lane stores of eight tokens and sixteen rows: two rows of two tokens, or of outputs of 16
// bits four adjacent rows of one token.
template <class Out>
struct LaneOutputs {
  static constexpr bool is_wide = sizeof(Out) == 4;

  int lane;

  __device__ __forceinline__ int token() const { return is_wide ? lane % 4 * 2 : lane / 4; }
  __device__ __forceinline__ int row() const {
    return is_wide ? lane / 4 : lane % 4 / 2 * 4 + lane % 2 * 8;
  }
  // value: rows g, tokens 0 and 1, then rows g + 8. `to`: of this lane's token and row; `left`: how
  // many tokens there are from that one on.
  __device__ __forceinline__ void store(Out* to, std::int64_t stride, int left,
                                        const float (&value)[4]) const {
    if constexpr (is_wide) {
      if (left > 0) to[0] = value[0], to[8] = value[2];
      if (left > 1) to[stride] = value[1], to[stride + 8] = value[3];
    } else {
      const std::uint32_t low = ptx::turn_matrix(round_pair<Out>(value[0], value[1]));
      const std::uint32_t high = ptx::turn_matrix(round_pair<Out>(value[2], value[3]));
      const bool is_odd = lane % 2 != 0;
      const std::uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, is_odd ? low : high, 1);
      if (left > 0) store_pairs(to, is_odd ? other : low, is_odd ? high : other);
    }
  }
};

// Whether this thread's rows of a thread block, `row` and the one eight rows on, may be finished
// so. All threads of a cluster must agree.
template <class K>
__device__ __forceinline__ bool may_finish_directly(const DecodeParameters& p,
                                                    const std::uint8_t* weights,
                                                    std::int64_t first_down, std::int64_t row) {
  const int shares = 1 << (p.log2_parts + p.log2_ranks);
  if (p.log2_ranks > 1 || K::tokens / 8 % shares != 0 ||
      !are_plain_outputs(p, first_down * DecodeLayout::tile_rows,
                         p.row_tiles * DecodeLayout::tile_rows)) {
    return false;
  }
  bool is_other = false;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    is_other |= weights[p.kinds_offset + row + 8 * i] != 0;
    if constexpr (has_tops<K>) is_other |= row_spreads<K>(p, weights)[row + 8 * i].is_wide != 0;
  }
  return !is_other;
}

template <class K>
struct DirectSm90 {
  static constexpr int blocks = K::tokens / 8;  // of tokens
  // Of a warpgroup, sixteen bytes a thread.
  static constexpr int block_bytes = 128 * 16;

  const DecodeParameters& p;
  const std::uint8_t* weights;
  std::int64_t batch, first_row;  // of the warp
  int first_token, count;
  int part, rank;
  int thread;
  std::uint32_t parts;  // where this thread's warpgroups of other parts leave their sums
  std::uint32_t inbox;  // the same of the other thread block
  std::uint32_t inbox_barrier;

  // This thread's first: the other one is eight rows on.
  __device__ __forceinline__ std::int64_t row() const { return first_row + thread % 32 / 4; }

  // Once the kernel ahead is over, and the other thread block of a cluster has started. `is_apart`:
  // the inbox lies beside the rings.
  __device__ __forceinline__ void run(const float (&sums)[K::tokens / 2], float factor,
                                      bool is_apart) const {
    if (p.log2_ranks > 0 && thread == 0) {
      ptx::mbarrier_expect(inbox_barrier,
                           DecodeSm90Shape::direct_inbox_bytes(K::tokens, p.row_tiles, 1));
    }
    if (p.out_dtype == DType::bfloat16) {
      run_as<bfloat16>(sums, factor, is_apart);
    } else if (p.out_dtype == DType::float16) {
      run_as<float16>(sums, factor, is_apart);
    } else {
      run_as<float>(sums, factor, is_apart);
    }
  }

 private:
  template <class Out>
  __device__ __forceinline__ void run_as(const float (&sums)[K::tokens / 2], float factor,
                                         bool is_apart) const {
    switch (p.log2_parts) {
      case 0: return run_parts<Out, 1>(sums, factor, is_apart);
      case 1: return run_parts<Out, 2>(sums, factor, is_apart);
      default: return run_parts<Out, 4>(sums, factor, is_apart);
    }
  }

  template <class Out, int Parts>
  __device__ __forceinline__ void run_parts(const float (&sums)[K::tokens / 2], float factor,
                                            bool is_apart) const {
    if constexpr (Parts <= K::warps / 4 && blocks % Parts == 0) {
      constexpr int each = blocks / Parts;
      float own[each][4];
      if constexpr (Parts == 1) {
#pragma unroll
        for (int i = 0; i < 4 * each; ++i) own[i / 4][i % 4] = sums[i];
      } else {
        sync_threads<K::threads>();  // the rings are read to the end
        add_parts<Parts>(own, sums);
      }
      if (p.log2_ranks == 0) {
        finish<Out, each>(own, part * each, factor);
      } else if constexpr (each % 2 == 0) {
        if (!is_apart) {
          cluster_arrive_relaxed();
          cluster_wait();
        }
        constexpr int half = each / 2;
#pragma unroll
        for (int b = 0; b < half; ++b) {
          float there[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) there[i] = rank == 0 ? own[b + half][i] : own[b][i];
          send_cluster(inbox + b * (K::threads * 16), inbox_barrier, rank ^ 1,
                       {there[0], there[1], there[2], there[3]});
        }
        float sum[half][4];
        ptx::mbarrier_wait(inbox_barrier, 0);
#pragma unroll
        for (int b = 0; b < half; ++b) {
          const float4 v = read_sums(inbox + b * (K::threads * 16));
          const float there[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            sum[b][i] = (rank == 0 ? own[b][i] : own[b + half][i]) + there[i];
          }
        }
        finish<Out, half>(sum, part * each + rank * half, factor);
      }
    }
  }

  // A warpgroup's share of the tokens, in the order of K.
  template <int Parts>
  __device__ __forceinline__ void add_parts(float (&own)[blocks / Parts][4],
                                            const float (&sums)[K::tokens / 2]) const {
    constexpr int each = blocks / Parts;
    const auto place = [&](int share, int from, int block) {
      const int sender = from - (from > share ? 1 : 0);
      return parts + ((share * (Parts - 1) + sender) * each + block) * block_bytes;
    };
#pragma unroll
    for (int share = 0; share < Parts; ++share) {
#pragma unroll
      for (int b = 0; b < each; ++b) {
        const float* v = sums + (share * each + b) * 4;
        if (share == part) {
#pragma unroll
          for (int i = 0; i < 4; ++i) own[b][i] = v[i];
        } else {
          write_shared(place(share, part, b),
                       uint4{bits_of(v[0]), bits_of(v[1]), bits_of(v[2]), bits_of(v[3])});
        }
      }
    }
    sync_threads<K::threads>();
#pragma unroll
    for (int b = 0; b < each; ++b) {
      float sum[4];
#pragma unroll
      for (int from = 0; from < Parts; ++from) {
        float v[4] = {own[b][0], own[b][1], own[b][2], own[b][3]};
        if (from != part) {
          const float4 there = read_sums(place(part, from, b));
          v[0] = there.x, v[1] = there.y, v[2] = there.z, v[3] = there.w;
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[i] = from == 0 ? v[i] : sum[i] + v[i];
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) own[b][i] = sum[i];
    }
  }

  // Two rows of two tokens of each eight, from the block `first` on.
  template <class Out, int Blocks>
  __device__ __forceinline__ void finish(const float (&sums)[Blocks][4], int first,
                                         float factor) const {
    float lacking[2] = {sum_factor<K>(), sum_factor<K>()}, bias[2] = {};
    const bool has_bias = p.bias != nullptr;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const std::int64_t at = row() + 8 * j;
      if constexpr (has_tops<K>) {
        lacking[j] = factor_of_top<K>(row_spreads<K>(p, weights)[at].top);
      }
      if (has_bias) bias[j] = load_as_float(p.bias, p.bias_dtype, first_bias<K>(p, batch) + at);
    }
    const LaneOutputs<Out> outputs{thread % 32};
    int token = first * 8 + outputs.token();
    const std::int64_t stride = p.out_row_stride;
    Out* to = static_cast<Out*>(p.out) + batch * p.out_batch_stride +
              (first_token + token) * stride + first_row + outputs.row();
#pragma unroll
    for (int b = 0; b < Blocks; ++b, token += 8, to += 8 * stride) {
      float value[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        value[i] = sums[b][i] * lacking[i / 2] * factor;
        if (has_bias) value[i] += bias[i / 2];
      }
      outputs.store(to, stride, count - token, value);
    }
  }
};

}  // namespace mxkern::kernels::few
