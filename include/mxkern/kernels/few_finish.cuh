// mxkern/kernels/few_finish.cuh: from the sums of warps to the outputs of a few-token product.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mxkern/core/dtype.h"
#include "mxkern/kernels/few_decode.cuh"
#include "mxkern/numerics/codec.h"

namespace mxkern::kernels::few {

// An element of reordered weights: its code, and its block's scale.
struct ReorderedElement {
  std::uint32_t code;
  std::uint8_t scale;
};
template <class K>
__device__ __forceinline__ ReorderedElement element_at(const FewParameters& p,
                                                       const std::uint8_t* weights,
                                                       std::int64_t row, std::int64_t column) {
  using Format = typename K::Format;
  using Bits = DecodeBits<Format>;
  const std::uint8_t* tile = weights + p.layout.tile_offset(row / DecodeLayout::tile_rows,
                                                            column / DecodeLayout::tile_columns);
  const int in_tile = static_cast<int>(column % DecodeLayout::tile_columns);
  const int row_in_tile = static_cast<int>(row % DecodeLayout::tile_rows);
  const DecodePlace place = p.layout.place(row_in_tile, in_tile);
  std::uint32_t words[Bits::words];
  for (int i = 0; i < Bits::words; ++i) {
    words[i] = *reinterpret_cast<const std::uint32_t*>(
        tile + p.layout.word_offset(place.column_block, place.lane,
                                    place.pair / Bits::pairs * Bits::words + i));
  }
  std::uint32_t bits = 0;
#pragma unroll
  for (int pair = 0; pair < Bits::pairs; ++pair) {
    if (place.pair % Bits::pairs == pair) bits = get_pair<Format>(words, pair);
  }
  const std::uint32_t code = gather_code<Format>(bits >> (16 * place.half) & 0xFFFFu);
  return {code, tile[p.layout.scale_offset(row_in_tile, in_tile / K::Scheme::block)]};
}

template <class K>
__device__ __forceinline__ float token_at(const std::uint8_t* x_row, std::int64_t column) {
  const auto element = *reinterpret_cast<const std::uint16_t*>(x_row + 2 * column);
  return K::is_half ? to_float(float16{element}) : to_float(bfloat16{element});
}

// The element-by-element product of a row that is not ordinary.
template <class K>
__device__ __noinline__ float multiply_special(const FewParameters& p, const std::uint8_t* weights,
                                               const std::uint8_t* x_row, std::int64_t row) {
  float sum = 0.0f;
  for (std::int64_t column = 0; column < p.layout.columns; ++column) {
    const ReorderedElement element = element_at<K>(p, weights, row, column);
    const float scale = decode_reordered_scale<typename K::Scheme>(element.scale);
    const float token = token_at<K>(x_row, column);
    const auto code = static_cast<std::uint8_t>(element.code);
    sum = fmaf(decode<typename K::Format>(code) * scale, token, sum);
  }
  return sum;
}

__device__ __forceinline__ float load_as_float(const void* data, DType dtype, std::int64_t i) {
  if (dtype == DType::float32) return static_cast<const float*>(data)[i];
  if (dtype == DType::float16) return to_float(static_cast<const float16*>(data)[i]);
  return to_float(static_cast<const bfloat16*>(data)[i]);
}

// Two outputs in 16 bits, the first one in the low half.
template <class T>
__device__ __forceinline__ std::uint32_t round_pair(float low, float high) {
  std::uint32_t pair;
  if constexpr (std::is_same_v<T, bfloat16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

// Four adjacent outputs, `count` of which exist. One store, where they are aligned, of which the
// compiler would make two or four.
template <class T>
__device__ __forceinline__ void store_four(void* data, std::int64_t at, const float (&value)[4],
                                           std::int64_t count) {
  T* out = static_cast<T*>(data) + at;
  const bool is_whole = count >= 4 && reinterpret_cast<std::uintptr_t>(out) % (4 * sizeof(T)) == 0;
  if constexpr (sizeof(T) == 4) {
    if (is_whole) {
      asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(out), "f"(value[0]),
                   "f"(value[1]), "f"(value[2]), "f"(value[3])
                   : "memory");
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (j < count) out[j] = value[j];
      }
    }
  } else {
    const uint2 pairs{round_pair<T>(value[0], value[1]), round_pair<T>(value[2], value[3])};
    if (is_whole) {
      asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(out), "r"(pairs.x), "r"(pairs.y)
                   : "memory");
    } else {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const std::uint32_t pair = j < 2 ? pairs.x : pairs.y;
        if (j < count) out[j] = {static_cast<std::uint16_t>(pair >> (16 * (j % 2)))};
      }
    }
  }
}

// Which outputs, in fours along the rows, a thread block of the cluster finishes.
struct Share {
  int begin, end;

  __device__ Share(const FewParameters& p, int fours, int rank)
      : begin(fours * rank >> p.log2_ranks), end(fours * (rank + 1) >> p.log2_ranks) {}
};

// Four sums, of all warps of the thread block that have a part of them.
template <class K>
__device__ __forceinline__ float4 add_parts(const FewParameters& p, std::uint32_t sums, int token,
                                            int quad) {
  const std::uint32_t address = sums + (quad / 8 << p.log2_parts) * K::shape().sum_bytes() +
                                token * FewShape::sum_stride + quad % 8 * 16;
  float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 4
  for (int part = 0; part < 1 << p.log2_parts; ++part) {
    const uint4 v = read_shared<uint4>(address + part * K::shape().sum_bytes());
    sum.x += float_of(v.x), sum.y += float_of(v.y);
    sum.z += float_of(v.z), sum.w += float_of(v.w);
  }
  return sum;
}

// Finishes and stores four outputs.
template <class K>
__device__ __forceinline__ void store_outputs(const FewParameters& p, const std::uint8_t* weights,
                                              std::int64_t batch, std::int64_t token,
                                              std::int64_t row, const float4& sum,
                                              std::uint32_t kinds) {
  const std::int64_t at = batch * p.out_batch_stride + token * p.out_row_stride + row;
  const std::int64_t count = p.layout.rows - row;
  float factor = p.alpha;
  if (p.left_tensor_scale != nullptr) factor *= *p.left_tensor_scale;
  if (p.right_tensor_scale != nullptr) factor *= *p.right_tensor_scale;
  float value[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    value[j] *= sum_factor<K>();
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
    value[j] *= factor;
    if (j < count) {
      if (p.beta != 0.0f) value[j] += p.beta * load_as_float(p.out, p.out_dtype, at + j);
      if (p.bias != nullptr) value[j] += load_as_float(p.bias, p.bias_dtype, row + j);
    }
  }
  if (p.out_dtype == DType::float32) {
    store_four<float>(p.out, at, value, count);
  } else if (p.out_dtype == DType::float16) {
    store_four<float16>(p.out, at, value, count);
  } else {
    store_four<bfloat16>(p.out, at, value, count);
  }
}

// Sends the other thread blocks of the cluster their shares, whose barriers `received` count bytes.
template <class K>
__device__ __forceinline__ void send_shares(const FewParameters& p, std::uint32_t sums,
                                            std::uint32_t inbox, std::uint32_t received, int quads,
                                            int tokens, int rank) {
  const int ranks = 1 << p.log2_ranks, thread = static_cast<int>(threadIdx.x);
  const int slot_bytes = (K::tokens * quads >> p.log2_ranks) * 16;
  for (int other = 0; other < ranks; ++other) {
    if (other == rank) continue;
    const Share share(p, tokens * quads, other);
    const std::uint32_t slot = inbox + (rank < other ? rank : rank - 1) * slot_bytes;
    for (int i = share.begin + thread; i < share.end; i += K::threads) {
      send_cluster(slot + (i - share.begin) * 16, received, static_cast<std::uint32_t>(other),
                   add_parts<K>(p, sums, i / quads, i % quads));
    }
  }
}

// Adds what came to this thread block's own sums, finishes and stores.
template <class K>
__device__ __forceinline__ void finish_share(const FewParameters& p, const std::uint8_t* weights,
                                             std::uint32_t sums, std::uint32_t inbox,
                                             std::int64_t batch, std::int64_t first_row,
                                             std::int64_t first_token, int quads,
                                             const Share& share, int rank) {
  const int ranks = 1 << p.log2_ranks, thread = static_cast<int>(threadIdx.x);
  const int slot_bytes = (K::tokens * quads >> p.log2_ranks) * 16;
  for (int i = share.begin + thread; i < share.end; i += K::threads) {
    const int token = i / quads, quad = i % quads;
    const std::int64_t row = first_row + quad * 4;
    if (row >= p.layout.rows) continue;
    const std::uint32_t kinds =
        *reinterpret_cast<const std::uint32_t*>(weights + p.layout.kinds_offset() + row);
    const float4 own = add_parts<K>(p, sums, token, quad);
    float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int r = 0; r < ranks; ++r) {
      float4 v = own;
      if (r != rank) {
        const uint4 sent = read_shared<uint4>(inbox + (r < rank ? r : r - 1) * slot_bytes +
                                              (i - share.begin) * 16);
        v = {float_of(sent.x), float_of(sent.y), float_of(sent.z), float_of(sent.w)};
      }
      sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    store_outputs<K>(p, weights, batch, first_token + token, row, sum, kinds);
  }
}

}  // namespace mxkern::kernels::few
