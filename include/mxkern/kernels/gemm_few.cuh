// mxkern/kernels/gemm_few.cuh: few tokens times reordered weights, at the speed of the weights.
//
// out[m, n] = x[m, :] . w[n, :]. Weights are the side of 16 of mma.m16n8k16, tokens that of 8. A
// warp takes tiles of 32 rows x 128 columns of weights. The warps of a thread block share a few
// tiles of rows and take turns along K; the thread blocks of a cluster have a part of K each. All
// parts are added in a fixed order, through shared memory. Weights come in bulk copies into a ring
// of each warp; one more warp copies the tokens, for all. Codes become bfloat16 or half in
// registers; block scales multiply the float32 sums of their blocks.
#pragma once

#include <cstdint>

#include "mxkern/core/dtype.h"
#include "mxkern/kernels/few_ptx.cuh"
#include "mxkern/kernels/few_shape.h"
#include "mxkern/numerics/codec.h"
#include "mxkern/tensor/decode_layout.h"

namespace mxkern::kernels {

struct FewParameters {
  DecodeLayout layout;
  const std::uint8_t* weights;
  std::int64_t weight_batch_bytes;  // 0: one matrix for all of x
  // Rows start on 16 bytes.
  const std::uint8_t* x;
  std::int64_t x_row_bytes, x_batch_bytes;
  std::int64_t tokens;
  int tiles;       // of the weights' columns
  int log2_ranks;  // of the parts of K that the thread blocks of a cluster have
  int log2_parts;  // of the parts of K that the warps of a thread block have
  int row_tiles;   // of a thread block; row_tiles << log2_parts warps multiply
  int stages;      // of a warp's ring
  int early;       // stages that are asked for before the first tokens are
  int x_stages;    //
  int shared_bytes;
  // The end.
  float alpha, beta;
  const float* left_tensor_scale;
  const float* right_tensor_scale;
  const void* bias;
  DType bias_dtype;
  void* out;
  DType out_dtype;
  std::int64_t out_row_stride, out_batch_stride;
};

// IsHalf: tokens are float16, else bfloat16. Tokens: of a thread block, a multiple of 8.
template <class S, bool IsHalf, int Tokens>
struct FewKernel {
  using Scheme = S;
  using Format = typename S::Format;
  static constexpr bool is_half = IsHalf;
  static constexpr int tokens = Tokens;
  static constexpr int warps = FewShape::warps(Tokens);
  static constexpr int producers = FewShape::producers;
  static constexpr int threads = 32 * (warps + producers);
  MXKERN_HOST_DEVICE static constexpr FewShape shape() { return {Format::bits, S::block, Tokens}; }
  static constexpr DecodeLayout layout{0, 0, Format::bits, S::block};
  static constexpr int tile_bytes = layout.tile_bytes();

  // Decoded bfloat16 weights are 2^(bias - 127) times their values. For one tile of tokens it takes
  // least to multiply these by a power of two, and the sums of a block by its scale. Tokens from
  // 2^32 on become infinite thereby: what is not finite is computed again, element by element.
  static constexpr bool scales_x = !IsHalf && !Format::is_integer && Tokens == 8;
  static constexpr int x_exponent = 96;

  // For more, the weights get their scales, times 2^-32, whereby products below 2^-94 lose bits.
  // In half there is no room for scales.
  static constexpr bool scales_weights = !IsHalf && Tokens > 8;
  static constexpr int weight_exponent = Format::is_integer ? 0 : -32;
};

namespace few {

template <class T>
__device__ __forceinline__ T read_shared(std::uint32_t address);
template <>
__device__ __forceinline__ uint4 read_shared<uint4>(std::uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(address));
  return v;
}
template <>
__device__ __forceinline__ uint2 read_shared<uint2>(std::uint32_t address) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(address));
  return v;
}

template <>
__device__ __forceinline__ std::uint32_t read_shared<std::uint32_t>(std::uint32_t address) {
  std::uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address));
  return v;
}

__device__ __forceinline__ void write_shared(std::uint32_t address, const uint4& v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}

// A pair of codes as two floats of 16 bits: 2^(bias - 127) times the values, half 2^(bias - 15),
// subnormal where they are. Integers: 64 times the values.
template <class Format, bool IsHalf>
__device__ __forceinline__ std::uint32_t decode_pair(const std::uint32_t* words, int pair) {
  using Bits = DecodeBits<Format>;
  if constexpr (Format::is_integer) {
    // The low seven bits as a mantissa over a power of two, less that power and the sign's 128.
    constexpr std::uint32_t base = IsHalf ? 0x64006400u : 0x43004300u;
    const std::uint32_t word = decode_layout::shifted(words[0], Bits::run(pair, 0).shift);
    const std::uint32_t low = (word & 0x007F007Fu) | base;
    const std::uint32_t high = (word & 0x00800080u) | base;
    std::uint32_t value;
    if constexpr (IsHalf) {
      asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(value) : "r"(low), "r"(high));
    } else {
      asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(value) : "r"(low), "r"(high));
    }
    return value;
  } else {
    std::uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < Bits::runs; ++i) {
      const BitRun run = Bits::run(pair, i);
      if constexpr (IsHalf) {
        // Exponent and mantissa three places higher, the sign where it is.
        const std::uint32_t payload = (run.mask & 0x7FFFu) << 3, sign = run.mask & 0x8000u;
        if (payload != 0) {
          bits |= decode_layout::shifted(words[run.word], run.shift + 3) & payload * 0x10001u;
        }
        if (sign != 0) {
          bits |= decode_layout::shifted(words[run.word], run.shift) & sign * 0x10001u;
        }
      } else if (run.mask != 0) {
        bits |= decode_layout::shifted(words[run.word], run.shift) & run.mask * 0x10001u;
      }
    }
    return bits;
  }
}

// What sums of products of decoded pairs lack.
template <class K>
MXKERN_HOST_DEVICE constexpr float sum_factor() {
  using Format = typename K::Format;
  if constexpr (Format::is_integer) {
    return Format::min_subnormal;
  } else if constexpr (K::is_half) {
    return float32::exp2(15 - Format::bias);
  } else {
    return K::scales_x ? float32::exp2(127 - Format::bias - K::x_exponent)
                       : float32::exp2(-K::weight_exponent);
  }
}

// The scale in byte `i` of a word.
template <class S>
__device__ __forceinline__ float scale_of(std::uint32_t word, int i) {
  if constexpr (S::has_tensor_scale) {
    const std::uint32_t bits = decode_layout::shifted(word, 20 - 8 * i) & 0x07F00000u;
    return float_of(bits) * 0x1p120f;
  } else {
    const std::uint32_t bits = decode_layout::shifted(word, 23 - 8 * i) & float32::exponent_mask;
    return float_of(max(bits, bits_of(0x1p-127f)));
  }
}

// Twice what decoded bfloat16 weights are to be multiplied with, for the scale in byte `i`.
template <class K>
__device__ __forceinline__ std::uint32_t multiplier_of(std::uint32_t word, int i) {
  using Format = typename K::Format;
  if constexpr (K::Scheme::has_tensor_scale) {
    const float scale = scale_of<typename K::Scheme>(word, i) *
                        float32::exp2(127 - Format::bias + K::weight_exponent);
    return __byte_perm(bits_of(scale), 0, 0x3232);
  } else {
    // In exponent fields; a byte that would carry beyond is in a row that is not ordinary.
    int offset = 0;
    if constexpr (!Format::is_integer) offset = 127 - Format::bias + K::weight_exponent;
    return ((word >> (8 * i) & 0xFFu) + static_cast<unsigned>(offset)) * 0x00800080u;
  }
}

__device__ __forceinline__ std::uint32_t multiply_pair(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

// Adds the products of one tile: 32 rows x 128 columns, from shared memory. The scales of a row are
// needed by four lanes, each of which makes a fourth of them floats, for all, in `floats`.
template <class K>
__device__ __forceinline__ void multiply_tile(float (&sums)[2][K::tokens / 8][4],
                                              std::uint32_t tile, std::uint32_t floats,
                                              std::uint32_t x, int x_stride, int lane) {
  using S = typename K::Scheme;
  using Format = typename K::Format;
  using Bits = DecodeBits<Format>;
  constexpr int words = Format::bits, blocks = DecodeLayout::tile_blocks;
  constexpr int block_scales = DecodeLayout::block_columns / S::block;
#pragma unroll
  for (int i = 0; i < block_scales; ++i) {
    const std::uint32_t at = (lane * block_scales + i) * 4;
    const std::uint32_t word = read_shared<std::uint32_t>(tile + K::layout.code_bytes() + at);
    std::uint32_t made[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      made[j] = K::scales_weights ? multiplier_of<K>(word, j) : bits_of(scale_of<S>(word, j));
    }
    write_shared(floats + at * 4, uint4{made[0], made[1], made[2], made[3]});
  }
  const std::uint32_t x_lane = x + lane / 4 * x_stride + lane % 4 * (S::block == 16 ? 8 : 16);
  const std::uint32_t floats_lane = floats + lane / 4 * (blocks * block_scales * 16);
#pragma unroll
  for (int block = 0; block < blocks; ++block) {
    std::uint32_t word[words];
#pragma unroll
    for (int plane = 0; plane < words / 4; ++plane) {
      const uint4 v =
          read_shared<uint4>(tile + block * K::layout.block_bytes() + plane * 512 + lane * 16);
      word[4 * plane] = v.x, word[4 * plane + 1] = v.y;
      word[4 * plane + 2] = v.z, word[4 * plane + 3] = v.w;
    }
    if constexpr (words % 4 == 2) {
      const uint2 v =
          read_shared<uint2>(tile + block * K::layout.block_bytes() + words / 4 * 512 + lane * 8);
      word[words - 2] = v.x, word[words - 1] = v.y;
    }
    if (block == 0) __syncwarp();
    std::uint32_t scale[block_scales][4];
#pragma unroll
    for (int i = 0; i < block_scales; ++i) {
      const uint4 v = read_shared<uint4>(floats_lane + (block * block_scales + i) * 16);
      scale[i][0] = v.x, scale[i][1] = v.y, scale[i][2] = v.z, scale[i][3] = v.w;
    }
    std::uint32_t a[2][2][4];  // [rows][step][register]
#pragma unroll
    for (int pair = 0; pair < 16; ++pair) {
      std::uint32_t& bits = a[pair / 8][pair / 4 % 2][pair % 4];
      bits = decode_pair<Format, K::is_half>(word + pair / Bits::pairs * Bits::words,
                                             pair % Bits::pairs);
      if constexpr (K::scales_weights) {
        bits = multiply_pair(bits, scale[pair / 4 % 2 % block_scales][pair / 8 * 2 + pair % 2]);
      }
    }
#pragma unroll
    for (int t = 0; t < K::tokens / 8; ++t) {
      std::uint32_t b[4];
      const std::uint32_t from = x_lane + t * 8 * x_stride + block * 64;
      if constexpr (S::block == 16) {
        const uint2 low = read_shared<uint2>(from), high = read_shared<uint2>(from + 32);
        b[0] = low.x, b[1] = low.y, b[2] = high.x, b[3] = high.y;
      } else {
        const uint4 v = read_shared<uint4>(from);
        b[0] = v.x, b[1] = v.y, b[2] = v.z, b[3] = v.w;
      }
      if constexpr (K::scales_x) {
#pragma unroll
        for (std::uint32_t& pair : b) {
          pair = multiply_pair(pair, static_cast<std::uint32_t>(127 + K::x_exponent) * 0x00800080u);
        }
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if constexpr (K::scales_weights) {
          multiply<K::is_half>(sums[i][t], a[i][0], b[0], b[1], sums[i][t]);
          multiply<K::is_half>(sums[i][t], a[i][1], b[2], b[3], sums[i][t]);
        } else {
          constexpr float zero[4] = {0.0f, 0.0f, 0.0f, 0.0f};
          float part[4], second[4];
          multiply<K::is_half>(part, a[i][0], b[0], b[1], zero);
          if constexpr (block_scales == 1) {
            multiply<K::is_half>(second, a[i][1], b[2], b[3], part);
          } else {
            multiply<K::is_half>(second, a[i][1], b[2], b[3], zero);
          }
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            const int row = 2 * i + j / 2;
            if constexpr (block_scales == 2) {
              sums[i][t][j] = fmaf(part[j], float_of(scale[0][row]), sums[i][t][j]);
            }
            sums[i][t][j] = fmaf(second[j], float_of(scale[block_scales - 1][row]), sums[i][t][j]);
          }
        }
      }
    }
  }
}

// The element-by-element product of a row that is not ordinary.
template <class K>
__device__ __noinline__ float multiply_special(const FewParameters& p, const std::uint8_t* weights,
                                               const std::uint8_t* x_row, std::int64_t row) {
  using S = typename K::Scheme;
  using Format = typename K::Format;
  using Bits = DecodeBits<Format>;
  float sum = 0.0f;
  for (std::int64_t column = 0; column < p.layout.columns; ++column) {
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
    const float scale =
        S::ScaleFormat::decode(tile[p.layout.scale_offset(row_in_tile, in_tile / S::block)]);
    const auto element = *reinterpret_cast<const std::uint16_t*>(x_row + 2 * column);
    const float token = K::is_half ? to_float(float16{element}) : to_float(bfloat16{element});
    sum = fmaf(decode<Format>(static_cast<std::uint8_t>(code)) * scale, token, sum);
  }
  return sum;
}

__device__ __forceinline__ float load_as_float(const void* data, DType dtype, std::int64_t i) {
  if (dtype == DType::float32) return static_cast<const float*>(data)[i];
  if (dtype == DType::float16) return to_float(static_cast<const float16*>(data)[i]);
  return to_float(static_cast<const bfloat16*>(data)[i]);
}

// Four adjacent outputs, `count` of which exist.
template <class T>
__device__ __forceinline__ void store_four(void* data, std::int64_t at, const float (&value)[4],
                                           std::int64_t count) {
  struct alignas(4 * sizeof(T)) Four {
    T v[4];
  };
  T* out = static_cast<T*>(data) + at;
  const Four four{from_float<T>(value[0]), from_float<T>(value[1]), from_float<T>(value[2]),
                  from_float<T>(value[3])};
  if (count >= 4 && reinterpret_cast<std::uintptr_t>(out) % sizeof(Four) == 0) {
    *reinterpret_cast<Four*>(out) = four;
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (j < count) out[j] = four.v[j];
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

// Sends the other thread blocks of the cluster their shares, and finishes this one's. All threads.
template <class K>
__device__ __forceinline__ void finish(const FewParameters& p, const std::uint8_t* weights,
                                       std::uint32_t sums, std::uint32_t inbox, std::int64_t batch,
                                       std::int64_t first_row, std::int64_t first_token, int rank) {
  const int ranks = 1 << p.log2_ranks, thread = static_cast<int>(threadIdx.x);
  const int quads = p.row_tiles * (DecodeLayout::tile_rows / 4);  // of rows
  const int tokens = static_cast<int>(lower_of<std::int64_t>(p.tokens - first_token, K::tokens));
  const int slot_bytes = (K::tokens * quads >> p.log2_ranks) * 16;
  if (ranks > 1) {
    cluster_wait();  // the others have started, and their inboxes exist
    for (int other = 0; other < ranks; ++other) {
      if (other == rank) continue;
      const Share share(p, tokens * quads, other);
      const std::uint32_t slot = inbox + (rank < other ? rank : rank - 1) * slot_bytes;
      for (int i = share.begin + thread; i < share.end; i += K::threads) {
        write_cluster(slot + (i - share.begin) * 16, static_cast<std::uint32_t>(other),
                      add_parts<K>(p, sums, i / quads, i % quads));
      }
    }
    cluster_arrive();
    cluster_wait();
  }
  const Share share(p, tokens * quads, rank);
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

// One warp copies the tokens of the thread block's part of K, stage by stage; zeros beyond K. Not
// by bulk copies: they would wait for those of the weights, many of which are always under way.
template <class K>
__device__ __forceinline__ void produce_tokens(const FewParameters& p, const std::uint8_t* x,
                                               int tokens, int first, int tiles, std::uint32_t ring,
                                               std::uint32_t full, std::uint32_t free, int producer,
                                               int lane) {
  constexpr int log2_chunks = 4;  // of 16 bytes, in a tile
  static_assert(DecodeLayout::tile_columns * 2 == 16 << log2_chunks);
  const int parts = 1 << p.log2_parts, turns = (tiles + parts - 1) >> p.log2_parts;
  const int x_stride = K::shape().x_stride(parts), stage_bytes = K::shape().x_stage_bytes(parts);
  // A warp copies two rows at a time where a row is one tile; warps take turns.
  const int chunks = parts << log2_chunks;
  const int in_turn = chunks < 32 ? 2 : 1, rows = in_turn * K::producers;
  const int lane_token = producer * in_turn + (chunks < 32 ? lane >> log2_chunks : 0);
  const int lane_chunk = chunks < 32 ? lane & (chunks - 1) : lane;
  const std::int64_t end = p.layout.columns * 2;
  int stage = 0, round = 0;
#pragma unroll 1
  for (int i = 0; i < turns; ++i) {
    if (round > 0) wait(free + stage * 8, (round - 1) & 1);
#pragma unroll 1
    for (int chunk = lane_chunk; chunk < chunks; chunk += 32) {
      const std::int64_t byte = (static_cast<std::int64_t>(first + i * parts) << 8) + chunk * 16;
      const auto left = static_cast<int>(lower_of<std::int64_t>(end - byte, 16));
      const int bytes = higher_of(left, 0);
      const std::uint8_t* from = x + lane_token * p.x_row_bytes + (left > 0 ? byte : 0);
      const std::int64_t step = rows * p.x_row_bytes;
      std::uint32_t to = ring + stage * stage_bytes + lane_token * x_stride + chunk * 16;
      int token = lane_token;
#pragma unroll 1
      for (; token + 3 * rows < tokens; token += 4 * rows) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          copy_chunk(to, from, bytes);
          from += step, to += rows * x_stride;
        }
      }
#pragma unroll 1
      for (; token < tokens; token += rows) {
        copy_chunk(to, from, bytes);
        from += step, to += rows * x_stride;
      }
    }
    arrive_after_chunks(full + stage * 8);
    if (++stage == p.x_stages) stage = 0, ++round;
  }
}

}  // namespace few

// Grid: ranks of the cluster and token tiles along x, groups of row tiles along y, batch along z.
template <class K>
__global__ void __launch_bounds__(K::threads, 1)
    gemm_few_kernel(const __grid_constant__ FewParameters p) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) std::uint8_t shared[];
  const std::uint32_t base = few::shared_address(shared);
  // The same in all lanes, which the compiler shall know.
  const int warp = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 32, 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int rank = static_cast<int>(blockIdx.x) & ((1 << p.log2_ranks) - 1);
  const int token_tile = static_cast<int>(blockIdx.x) >> p.log2_ranks;
  const std::int64_t first_down = static_cast<std::int64_t>(blockIdx.y) * p.row_tiles;
  const std::int64_t batch = blockIdx.z;
  const std::int64_t first_token = static_cast<std::int64_t>(token_tile) * K::tokens;
  // Of the thread block, along K: a tile for each part in turn.
  const int first = p.tiles * rank >> p.log2_ranks;
  const int tiles = (p.tiles * (rank + 1) >> p.log2_ranks) - first;
  const int parts = 1 << p.log2_parts, active = p.row_tiles << p.log2_parts;
  const int part = warp & (parts - 1);
  const std::int64_t down = first_down + (warp >> p.log2_parts);
  const bool has_rows = warp < active && down < p.layout.tiles_down();
  const int turns = (tiles - part + parts - 1) >> p.log2_parts;
  const std::uint8_t* weights = p.weights + batch * p.weight_batch_bytes;

  // Barriers: a ring's stage is full; a stage of tokens is full, and free again.
  const std::uint32_t full = base + warp * p.stages * 8;
  const std::uint32_t x_full = base + active * p.stages * 8;
  const std::uint32_t x_free = x_full + p.x_stages * 8;
  const std::uint32_t rings = base + FewShape::barrier_bytes;
  const std::uint32_t ring = rings + warp * p.stages * K::tile_bytes;
  const std::uint32_t floats =
      rings + active * p.stages * K::tile_bytes + warp * K::shape().scale_bytes();
  const std::uint32_t x_ring =
      rings + active * (p.stages * K::tile_bytes + K::shape().scale_bytes());
  const std::uint8_t* from = weights + (down * p.tiles + first + part) * K::tile_bytes;
  const std::int64_t step = static_cast<std::int64_t>(parts) * K::tile_bytes;
  const std::uint64_t policy = few::evict_first_policy();

  few::let_next_kernel_start();
  if (p.log2_ranks > 0) few::cluster_arrive_relaxed();
  if (lane == 0) {
    if (warp < active) {
#pragma unroll 1
      for (int i = 0; i < p.stages; ++i) few::init_barrier(full + i * 8, 1);
    } else if (warp == K::warps) {
#pragma unroll 1
      for (int i = 0; i < p.x_stages; ++i) {
        few::init_barrier(x_full + i * 8, 32 * K::producers);
        few::init_barrier(x_free + i * 8, active);
      }
    }
    few::fence_barrier_init();
    // Weights do not depend on what the kernel before this one computes. Of the rows' kinds, which
    // are read last, so much now that they are in the L2 cache then.
    if (has_rows && part == 0) few::prefetch(weights + p.layout.kinds_offset() + down * 32);
    if (has_rows) {
#pragma unroll 1
      for (int i = 0; i < p.early && i < turns; ++i) {
        few::arrive_expecting(full + i * 8, K::tile_bytes);
        few::copy_bulk(ring + i * K::tile_bytes, from + i * step, K::tile_bytes, full + i * 8,
                       policy);
      }
    }
  }
  few::wait_for_previous_kernel();
  __syncthreads();

  if (warp >= K::warps) {
    const std::uint8_t* x = p.x + batch * p.x_batch_bytes + first_token * p.x_row_bytes;
    const int tokens = static_cast<int>(lower_of<std::int64_t>(p.tokens - first_token, K::tokens));
    few::produce_tokens<K>(p, x, tokens, first, tiles, x_ring, x_full, x_free, warp - K::warps,
                           lane);
  }

  float sums[2][K::tokens / 8][4] = {};
  if (warp < active) {
    const int x_stride = K::shape().x_stride(parts),
              x_stage_bytes = K::shape().x_stage_bytes(parts);
    const std::uint32_t x_part = x_ring + part * (DecodeLayout::tile_columns * 2);
    const int all_turns = (tiles + parts - 1) >> p.log2_parts;
    const std::uint8_t* next = from + p.stages * step;
    int stage = 0, parity = 0, x_stage = 0, x_parity = 0;
#pragma unroll 1
    for (int i = 0; i < all_turns; ++i) {
      const std::uint32_t tile = ring + stage * K::tile_bytes, barrier = full + stage * 8;
      few::wait(x_full + x_stage * 8, x_parity);
      if (i == 0 && has_rows && lane == 0) {
#pragma unroll 1
        for (int j = p.early; j < p.stages && j < turns; ++j) {
          few::arrive_expecting(full + j * 8, K::tile_bytes);
          few::copy_bulk(ring + j * K::tile_bytes, from + j * step, K::tile_bytes, full + j * 8,
                         policy);
        }
      }
      if (has_rows && i < turns) {
        few::wait(barrier, parity);
        few::multiply_tile<K>(sums, tile, floats, x_part + x_stage * x_stage_bytes, x_stride, lane);
      }
      __syncwarp();
      if (lane == 0) {
        few::arrive(x_free + x_stage * 8);
        if (has_rows && i + p.stages < turns) {
          few::arrive_expecting(barrier, K::tile_bytes);
          few::copy_bulk(tile, next, K::tile_bytes, barrier, policy);
        }
      }
      next += step;
      if (++stage == p.stages) stage = 0, parity ^= 1;
      if (++x_stage == p.x_stages) x_stage = 0, x_parity ^= 1;
    }
  }

  // The sums take the place of the rings, which are read to the end.
  __syncthreads();
  if (warp < active) {
    const std::uint32_t to = rings + warp * K::shape().sum_bytes();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int t = 0; t < K::tokens / 8; ++t) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int token = t * 8 + lane % 4 * 2 + j % 2, row = i * 16 + j / 2 * 8 + lane / 4;
          asm volatile("st.shared.f32 [%0], %1;" ::"r"(to + token * FewShape::sum_stride + row * 4),
                       "f"(sums[i][t][j])
                       : "memory");
        }
      }
    }
  }
  __syncthreads();
  const std::uint32_t inbox =
      base + p.shared_bytes - K::shape().inbox_bytes(p.row_tiles, p.log2_ranks);
  few::finish<K>(p, weights, rings, inbox, batch, first_down * DecodeLayout::tile_rows, first_token,
                 rank);
#endif
}

}  // namespace mxkern::kernels
