// mxkern/kernels/decode/epilogue.cuh: from the sums of gemm_decode's warps to its outputs.
#pragma once

#include <cstdint>

#include "mxkern/kernels/decode/outputs.cuh"
#include "mxkern/kernels/decode/output_tile.cuh"
#include "mxkern/kernels/ptx/mbarrier.cuh"

namespace mxkern::kernels::few {

// Four outputs, whatever they are. `sum` lacks no more than the factor.
template <class K>
__device__ __forceinline__ float4 finish_any(const DecodeParameters& p, const std::uint8_t* weights,
                                             int batch, int token, std::int64_t row, float4 sum,
                                             std::uint32_t kinds, CommonFactor factor,
                                             float4 bias) {
  const std::int64_t at = batch * p.out_batch_stride + token * p.out_row_stride + row;
  const std::int64_t count = p.layout.rows - row;
  float value[4] = {sum.x, sum.y, sum.z, sum.w};
  const float added[4] = {bias.x, bias.y, bias.z, bias.w};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const bool again = K::scales_x && !float32::is_finite(bits_of(value[j]));
    if ((kinds != 0 || again) && j < count) {
      const auto kind = static_cast<RowKind>(kinds >> (8 * j) & 0xFFu);
      if (kind == RowKind::poisoned) {
        value[j] = float_of(float32::nan_bits);
      } else if (kind == RowKind::special || again) {
        value[j] = multiply_special<K>(
            p, weights, p.x + batch * p.x_batch_bytes + token * p.x_row_bytes, row + j);
      }
    }
  }
  scale_four(p, batch, token, factor, value);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (p.beta != 0.0f && j < count) {
      value[j] += p.beta * load_as_float(p.out, p.out_dtype, at + j);
    }
    if (p.bias != nullptr) value[j] += added[j];
  }
  return {value[0], value[1], value[2], value[3]};
}

// Stores outputs of which so many exist.
__device__ __forceinline__ void store_as(const DecodeParameters& p, std::int64_t at,
                                         const float (&value)[4], std::int64_t count) {
  if (p.out_dtype == DType::float32) {
    store_four(static_cast<float*>(p.out) + at, value, count);
  } else if (p.out_dtype == DType::float16) {
    store_four(static_cast<float16*>(p.out) + at, value, count);
  } else {
    store_four(static_cast<bfloat16*>(p.out) + at, value, count);
  }
}

// Finishes and stores them.
template <class K>
__device__ __noinline__ void store_any(const DecodeParameters& p, const std::uint8_t* weights,
                                       int batch, int token, std::int64_t row, float4 sum,
                                       std::uint32_t kinds, CommonFactor factor, float4 bias) {
  const float4 v = finish_any<K>(p, weights, batch, token, row, sum, kinds, factor, bias);
  const float value[4] = {v.x, v.y, v.z, v.w};
  store_as(p, batch * p.out_batch_stride + token * p.out_row_stride + row, value,
           p.layout.rows - row);
}

// Four ordinary outputs.
__device__ __forceinline__ float4 finish_ordinary(const DecodeParameters& p, int batch, int token,
                                                  const float4& sum, const CommonFactor& factor,
                                                  const float4& bias) {
  float value[4] = {sum.x, sum.y, sum.z, sum.w};
  scale_four(p, batch, token, factor, value);
  if (p.bias != nullptr) {
    value[0] += bias.x, value[1] += bias.y, value[2] += bias.z, value[3] += bias.w;
  }
  return {value[0], value[1], value[2], value[3]};
}

// Multiplies four sums by the constant that the decoding of weights leaves out. False: one of them
// is not finite, so that it has to be computed again.
template <class K>
__device__ __forceinline__ bool complete_sums(float4& sum) {
  sum.x *= sum_factor<K>(), sum.y *= sum_factor<K>();
  sum.z *= sum_factor<K>(), sum.w *= sum_factor<K>();
  if constexpr (K::scales_x) {
    // NaN, and infinity times zero, differ from themselves.
    const float zeros = (sum.x + sum.y + sum.z + sum.w) * 0.0f;
    return zeros == zeros;
  }
  return true;
}

// Finishes and stores four sums, to the address of their outputs. `is_plain`: there are four of
// them, of ordinary rows, and nothing is added to what they were.
template <class K>
__device__ __forceinline__ void finish_four(const DecodeParameters& p, const std::uint8_t* weights,
                                            int batch, int token, std::int64_t row, float4 sum,
                                            std::uint32_t kinds, bool is_plain,
                                            const CommonFactor& factor, const float4& bias,
                                            std::uint8_t* to) {
  const std::uintptr_t misaligned = p.out_dtype == DType::float32 ? 15u : 7u;
  const bool is_aligned = (reinterpret_cast<std::uintptr_t>(to) & misaligned) == 0;
  if (!complete_sums<K>(sum) || !is_plain || !is_aligned) {
    store_any<K>(p, weights, batch, token, row, sum, kinds, factor, bias);
    return;
  }
  const float4 v = finish_ordinary(p, batch, token, sum, factor, bias);
  const float value[4] = {v.x, v.y, v.z, v.w};
  if (p.out_dtype == DType::float32) {
    store_whole(reinterpret_cast<float*>(to), value);
  } else if (p.out_dtype == DType::float16) {
    store_whole(reinterpret_cast<float16*>(to), value);
  } else {
    store_whole(reinterpret_cast<bfloat16*>(to), value);
  }
}

// Biases of four rows, of which the first exists.
template <class K>
__device__ __forceinline__ float4 load_bias(const DecodeParameters& p, int batch,
                                            std::int64_t row) {
  const std::int64_t at = first_bias<K>(p, batch) + row, left = p.layout.rows - row;
  float4 bias = {load_as_float(p.bias, p.bias_dtype, at), 0.0f, 0.0f, 0.0f};
  if (left > 1) bias.y = load_as_float(p.bias, p.bias_dtype, at + 1);
  if (left > 2) bias.z = load_as_float(p.bias, p.bias_dtype, at + 2);
  if (left > 3) bias.w = load_as_float(p.bias, p.bias_dtype, at + 3);
  return bias;
}

// Reads four floats of shared memory.
__device__ __forceinline__ float4 four_at(std::uint32_t address) {
  const uint4 v = read_shared<uint4>(address);
  return {float_of(v.x), float_of(v.y), float_of(v.z), float_of(v.w)};
}

// Adds four sums of a warp.
__device__ __forceinline__ void add_sums(float4& sum, std::uint32_t address) {
  const float4 v = four_at(address);
  sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
}

// Sums lie in shared memory, for each tile of rows those of the parts of K, and are added in the
// order of K. A thread finishes four rows of the weights, always the same, of every so many tokens.
// Each thread block of a cluster finishes a share of the tokens; the others send it their sums of
// these. All of it happens once, so that instructions are what takes the time: what can be worked
// out before the sums are there is, and ordinary outputs have their instructions for themselves.
template <class K>
struct Finish {
  const DecodeParameters& p;
  const std::uint8_t* weights;
  int batch, first_down, first_token;
  int count;                            // see Place
  std::uint32_t sums, inbox, received;  // the latter: a barrier, of what the others send
  int rank;
  int quad = 0;            // which four rows
  int begin = 0, end = 0;  // of the thread's tokens
  std::uint32_t own = 0;   // sums of the first of them
  std::uint8_t* out = nullptr;
  std::uint32_t kinds = 0;  // of the four rows, a byte each
  float tensor_scale = 1.0f;
  float4 bias = {0.0f, 0.0f, 0.0f, 0.0f};

  __device__ __forceinline__ int step() const { return K::threads / 8 * p.inverse_row_tiles >> 16; }
  __device__ __forceinline__ int row_bytes() const {
    return p.row_tiles * DecodeLayout::tile_rows * 4;
  }
  // Of a thread block of the cluster.
  __device__ __forceinline__ int first_of(int rank_of) const {
    return tokens_at<K>(p, first_token, count) * rank_of >> p.log2_ranks;
  }
  __device__ __forceinline__ std::uint32_t slot(int index) const {
    return inbox + index * ((K::tokens >> p.log2_ranks) * row_bytes()) + quad * 16;
  }
  __device__ __forceinline__ std::int64_t first_row() const {
    return first_down * DecodeLayout::tile_rows + quad * 4;
  }

  // Whatever does not depend on the kernel ahead, as what belongs to the weights.
  __device__ __forceinline__ void prepare() {
    const int thread = static_cast<int>(threadIdx.x);
    const int turn = thread / 8 * p.inverse_row_tiles >> 16;
    quad = kept(thread - turn * p.row_tiles * 8);
    begin = kept(first_of(rank) + turn);
    // Where rows do not divide the threads some are left.
    end = kept(turn < step() ? first_of(rank + 1) : 0);
    own = static_cast<std::uint32_t>(kept(static_cast<int>(sums_of(begin))));
    const std::int64_t row = first_row();
    out = kept(static_cast<std::uint8_t*>(p.out) +
               ((batch * p.out_batch_stride + (first_token + begin) * p.out_row_stride + row)
                << log2_size()));
    if (row < p.layout.rows) {
      kinds = *reinterpret_cast<const std::uint32_t*>(weights + p.kinds_offset + row);
    } else {
      end = 0;
    }
    if (p.right_tensor_scale != nullptr) tensor_scale = *p.right_tensor_scale;
  }

  // Once the kernel ahead is over: what it may have written.
  __device__ __forceinline__ void prepare_more() {
    const std::int64_t row = first_row();
    if (p.bias != nullptr && row < p.layout.rows) bias = load_bias<K>(p, batch, row);
  }

  // One thread, before anybody sends.
  __device__ __forceinline__ void expect() const {
    const int tokens = first_of(rank + 1) - first_of(rank);
    ptx::mbarrier_expect(received, ((1 << p.log2_ranks) - 1) * tokens * row_bytes());
  }

  __device__ __forceinline__ void send() const {
    const int ranks = 1 << p.log2_ranks, turn = begin - first_of(rank);
    if (turn >= step()) return;
#pragma unroll 1
    for (int other = 0; other < ranks; ++other) {
      if (other == rank) continue;
      const int first = first_of(other), last = first_of(other + 1);
      const std::uint32_t to = slot(rank - (rank > other ? 1 : 0));
#pragma unroll 1
      for (int token = first + turn; token < last; token += step()) {
        send_cluster(to + (token - first) * row_bytes(), received,
                     static_cast<std::uint32_t>(other), add_parts(sums_of(token)));
      }
    }
  }

  __device__ __forceinline__ void store() const {
    const std::int64_t row = first_row(), stride = p.out_row_stride << log2_size();
    const bool is_plain = kinds == 0 && p.beta == 0.0f && row + 4 <= p.layout.rows;
    const float left_scale = p.left_tensor_scale != nullptr ? *p.left_tensor_scale : 1.0f;
    const CommonFactor factor =
        quick_common_factor(p.alpha, left_scale, tensor_scale, group_factor<K>(p, batch));
    std::uint32_t from = own;
    std::uint8_t* to = out;
#pragma unroll 1
    for (int i = begin; i < end; i += step()) {
      float4 sum = add_parts(from);
      if (p.log2_ranks > 0) sum = add_ranks(sum, i - first_of(rank));
      finish_four<K>(p, weights, batch, first_token + i, row, sum, kinds, is_plain, factor, bias,
                     to);
      from += step() * DecodeShape::sum_stride;
      to += step() * stride;
    }
  }

 private:
  __device__ __forceinline__ int log2_size() const { return p.out_dtype == DType::float32 ? 2 : 1; }
  // Of the first part of K.
  __device__ __forceinline__ std::uint32_t sums_of(int token) const {
    return sums + (quad / 8 << p.log2_parts) * K::shape().sum_bytes() +
           token * DecodeShape::sum_stride + quad % 8 * 16;
  }
  // Four sums, of all warps of the thread block that have a part of them.
  __device__ __forceinline__ float4 add_parts(std::uint32_t from) const {
    constexpr int bytes = K::shape().sum_bytes();
    float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
    int parts = 1 << p.log2_parts;
#pragma unroll 1
    for (; parts >= 4; parts -= 4, from += 4 * bytes) {
      add_sums(sum, from), add_sums(sum, from + bytes), add_sums(sum, from + 2 * bytes);
      add_sums(sum, from + 3 * bytes);
    }
    if (parts > 0) add_sums(sum, from);
    if (parts > 1) add_sums(sum, from + bytes);
    return sum;
  }

  // Those of all thread blocks of the cluster, of the share's `i`-th token.
  __device__ __forceinline__ float4 add_ranks(const float4& own, int i) const {
    float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
    for (int r = 0; r < 1 << p.log2_ranks; ++r) {
      if (r == rank) {
        sum.x += own.x, sum.y += own.y, sum.z += own.z, sum.w += own.w;
      } else {
        add_sums(sum, slot(r - (r > rank ? 1 : 0)) + i * row_bytes());
      }
    }
    return sum;
  }
};

}  // namespace mxkern::kernels::few
