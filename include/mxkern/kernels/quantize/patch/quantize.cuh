// mxkern/kernels/quantize/patch/quantize.cuh: a patch of 16-bit elements in registers: both
// directions, the columns alone, square blocks, and a Hadamard transform along the columns.
#pragma once

#include <cstdint>

#include "mxkern/kernels/quantize/patch/in_halves.cuh"
#include "mxkern/kernels/quantize/patch/scales.cuh"
#include "mxkern/kernels/quantize/columns.cuh"

namespace mxkern::kernels {

// The patch of one lane.
template <class S, class Element, Rounding R, PatchWork W>
struct Patch : PatchInHalves<S, Element, R, W> {
  using Base = PatchInHalves<S, Element, R, W>;
  using Base::Base, Base::bits, Base::in_halves, Base::in_lines, Base::in_pairs, Base::is_bfloat16;
  using Base::both_in_halves, Base::rows_in_halves;
  using Base::exchanges, Base::memory, Base::stay, Base::stays;
  using Base::find_amax, Base::counter, Base::counter_step, Base::p, Base::raw;
  using Base::put_column, Base::put_column_scale, Base::put_row, Base::put_row_scale;
  using Base::put_tall_column, Base::tall_in_halves;
  using typename Base::Format;
  using typename Base::T;
  using typename Base::Tall;
  static constexpr float prescale = R == Rounding::nearest ? octet_scale<Format> : 1.0f;

  __device__ __forceinline__ static PatchCodes poisoned() {
    return unpacked<bits>(poison_octet<Format>);
  }

  // Codes of eight values under one multiplier.
  template <bool Rare>
  __device__ __forceinline__ static PatchCodes scaled_codes(const RawOctet<T>& octet,
                                                            const float (&v)[8], float multiplier,
                                                            const Philox4& words) {
    const float factor = __fmul_rn(multiplier, prescale);
    float scaled[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) scaled[k] = __fmul_rn(v[k], factor);
    std::uint32_t signs = 0;
    if constexpr (in_lines) signs = ptx::e2m1_signs(octet.word);
    const PatchCodes codes = encode_patch_row<S, R>(scaled, Rare, signs, words);
    return Rare && multiplier < 0.0f ? poisoned() : codes;
  }

  // Whether elements times the multiplier of their block, a power of two, are exact in bfloat16 up
  // to what has the code zero: then two at a time.
  static constexpr bool is_random = R == Rounding::stochastic;
  static constexpr bool pairs_are_exact =
      is_bfloat16 && (bits == 8 || is_random) && S::ScaleFormat::is_power_of_two;

  // Whether values are held to the largest one. With random words that is asked for all blocks.
  template <bool Rare>
  __device__ __forceinline__ bool saturates() const {
    if constexpr (S::has_tensor_scale || !is_random) return Rare;
    return p.along_rows.options.rule.saturates || p.along_columns.options.rule.saturates;
  }

  // Codes of eight values under multipliers of pairs.
  template <bool Rare>
  __device__ __forceinline__ PatchCodes codes_of_pairs(const RawOctet<T>& octet,
                                                       const std::uint32_t (&pairs)[4],
                                                       const Philox4& words) const {
    RawOctet<T> product;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const __nv_bfloat162 two = __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&octet.word[k]),
                                         *reinterpret_cast<const __nv_bfloat162*>(&pairs[k]));
      product.word[k] = *reinterpret_cast<const std::uint32_t*>(&two);
    }
    float scaled[8];
    unpack(product, scaled);
    return encode_patch_row<S, R>(scaled, saturates<Rare>(), 0, words);
  }

  template <bool Rare>
  __device__ __forceinline__ PatchCodes row_codes(const RawOctet<T>& octet, float multiplier,
                                                  const Philox4& words) const {
    if constexpr (in_pairs) {
      const Octet codes = encode_bfloat16_octet<Rare>(octet.word, multiplier);
      return Rare && multiplier < 0.0f ? poisoned() : unpacked<bits>(codes);
    } else if constexpr (pairs_are_exact) {
      const std::uint32_t pair = __byte_perm(bits_of(multiplier), 0u, 0x3232);
      const PatchCodes codes = codes_of_pairs<Rare>(octet, {pair, pair, pair, pair}, words);
      return Rare && multiplier < 0.0f ? poisoned() : codes;
    } else {
      float v[8];
      unpack(octet, v);
      return scaled_codes<Rare>(octet, v, multiplier, words);
    }
  }

  // One scale for all: the patches of a square exchange their amax.
  __device__ __forceinline__ void quantize_squares(const PackedAmax<T> (&pairs)[4],
                                                   const BlockScaler<S>& scaler) const {
    constexpr int lanes = S::block / patch_extent;
    std::uint32_t amax[1] = {pairs[0].higher(pairs[1]).higher(pairs[2].higher(pairs[3])).value()};
    amax[0] = lanes_amax<lanes, 4>(lanes_amax<lanes>(amax[0]));
    const BlockScale scale = scaler(amax[0]);
    // Each of the lanes that share a square's rows, or columns, has some of its bytes.
#pragma unroll
    for (int k = 0; k < patch_extent; k += lanes) {
      put_row_scale(patch_across() % lanes + k, scale.byte);
      put_column_scale(patch_down() % lanes + k, scale.byte);
    }
    const float multiplier[1] = {scale.multiplier};
    if (warp_is_rare<R>(is_rare<S, R>(amax, multiplier, scaler))) {
      encode_squares<true>(scale.multiplier);
    } else {
      encode_squares<false>(scale.multiplier);
    }
  }

  template <bool Rare>
  __device__ __forceinline__ void encode_squares(float multiplier) const {
    RandomWords<R> random(p.along_rows.options.keys, p.along_rows.options.offset);
    PatchCodes codes[patch_extent];
#pragma unroll
    for (int i = 0; i < patch_extent; ++i) {
      const Philox4 words = random.whole_octet(counter + i * counter_step());
      codes[i] = row_codes<Rare>(raw[i], multiplier, words);
      put_row(i, codes[i]);
    }
    turn_patch<bits>(codes);
#pragma unroll
    for (int i = 0; i < patch_extent; ++i) put_column(i, codes[i]);
  }

  // `again` reads the elements again.
  template <class Again>
  __device__ __forceinline__ void quantize(PackedAmax<T> (&rows)[2][4], PackedAmax<T> (&pairs)[4],
                                           const BlockScaler<S>& row_scaler,
                                           const BlockScaler<S>& column_scaler,
                                           const Again& again) {
    if constexpr (W == PatchWork::columns) {
      const PatchColumnScales<S> column_scales(pairs, column_scaler);
      encode_columns(column_scales, column_scaler);
    } else if constexpr (W == PatchWork::transform) {
      if (p.along_rows.codes != nullptr) quantize_rows(rows, row_scaler);
      const int size = p.along_columns.options.hadamard_size;
      if constexpr (!stays && R == Rounding::nearest && S::ScaleFormat::is_power_of_two &&
                    is_bfloat16) {
        // The factor of groups of 16 is a power of two, which the multipliers of blocks can have.
        if (size == 16) {
          this->template transform<true>(size, S::block, p.column_signs);
          find_amax(rows, pairs);
          const PatchColumnScales<S> column_scales(pairs, column_scaler, hadamard_norm(16));
          if (__all_sync(full_warp, column_scales.spares_factor())) {
            encode_columns(column_scales, column_scaler);
            return;
          }
          again();
        }
      }
      this->template transform<false>(size, S::block, p.column_signs);
      find_amax(rows, pairs);
      const PatchColumnScales<S> column_scales(pairs, column_scaler);
      encode_columns(column_scales, column_scaler);
    } else {
      if constexpr (in_halves) {
        stay();
        if (both_in_halves(rows, pairs, row_scaler, column_scaler.table)) return;
      }
      const SharedScales<S> row_scales[2] = {{rows[0], row_scaler}, {rows[1], row_scaler}};
      put_row_scales(row_scales);
      const PatchColumnScales<S> column_scales(pairs, column_scaler);
      put_column_scales(column_scales);
      const bool rare = rows_are_rare(row_scales, row_scaler) ||
                        is_rare<S, R>(column_scales.amax, column_scales.multiplier, column_scaler);
      if (in_halves || warp_is_rare<R>(rare)) {
        encode<true>(row_scales, column_scales);
      } else {
        encode<false>(row_scales, column_scales);
      }
    }
  }

  __device__ __forceinline__ void quantize_rows(const PackedAmax<T> (&rows)[2][4],
                                                const BlockScaler<S>& scaler) const {
    if constexpr (in_halves) {
      if (rows_in_halves(rows, scaler)) return;
    }
    const SharedScales<S> scales[2] = {{rows[0], scaler}, {rows[1], scaler}};
    put_row_scales(scales);
    if (in_halves || warp_is_rare<R>(rows_are_rare(scales, scaler))) {
      encode_rows<true>(scales);
    } else {
      encode_rows<false>(scales);
    }
  }

  __device__ __forceinline__ static bool rows_are_rare(const SharedScales<S> (&scales)[2],
                                                       const BlockScaler<S>& scaler) {
    return is_rare<S, R>(scales[0].amax, scales[0].multiplier, scaler) ||
           is_rare<S, R>(scales[1].amax, scales[1].multiplier, scaler);
  }

  __device__ __forceinline__ void put_row_scales(const SharedScales<S> (&scales)[2]) const {
    constexpr int own = SharedScales<S>::rows;
#pragma unroll
    for (int k = 0; k < 2 * own; ++k) {
      put_row_scale(k / own * 4 + SharedScales<S>::row(k % own), scales[k / own].byte[k % own]);
    }
  }

  __device__ __forceinline__ void put_column_scales(const PatchColumnScales<S>& scales) const {
#pragma unroll
    for (int k = 0; k < PatchColumnScales<S>::count; ++k) {
      put_column_scale(PatchColumnScales<S>::column(k), scales.byte[k]);
    }
  }

  __device__ __forceinline__ void encode_columns(const PatchColumnScales<S>& scales,
                                                 const BlockScaler<S>& scaler) const {
    put_column_scales(scales);
    if (in_halves || warp_is_rare<R>(is_rare<S, R>(scales.amax, scales.multiplier, scaler))) {
      encode<true>(nullptr, scales);
    } else {
      encode<false>(nullptr, scales);
    }
  }

  // The rows alone.
  template <bool Rare>
  __device__ __forceinline__ void encode_rows(const SharedScales<S>* scales) const {
    RandomWords<R> random(p.along_rows.options.keys, p.along_rows.options.offset);
#pragma unroll
    for (int i = 0; i < patch_extent; ++i) {
      const Philox4 words = random.whole_octet(counter + i * counter_step());
      if constexpr (exchanges) put_words(i, words);
      put_row(i, row_codes<Rare>(raw[i], scales[i / 4].of_row(i % 4), words));
    }
  }

  // For the lanes that have these elements of transformed columns.
  __device__ __forceinline__ void put_words(int i, const Philox4& words) const {
    memory.words[i][shared_lane(threadIdx.x)] =
        make_uint4(words.lane[0], words.lane[1], words.lane[2], words.lane[3]);
  }

  // Where there are no rows to be quantized.
  __device__ __forceinline__ void put_words() const {
    RandomWords<R> random(p.along_columns.options.keys, p.along_columns.options.offset);
#pragma unroll
    for (int i = 0; i < patch_extent; ++i) {
      put_words(i, random.whole_octet(counter + i * counter_step()));
    }
  }

  // Columns of which a lane has whole blocks, after their transform.
  __device__ __forceinline__ void quantize_tall(Tall& tall, const PackedAmax<T> (&rows)[2][4],
                                                const BlockScaler<S>& scaler) const {
    this->transform_tall(tall, rows);
    std::uint32_t amax[Tall::columns];
    tall.find_amax(amax);
    if constexpr (!exchanges) {
      tall_in_halves(tall, amax, scaler);
    } else {
      float multipliers[Tall::columns];
      std::uint8_t bytes[Tall::columns];
#pragma unroll
      for (int k = 0; k < Tall::columns; ++k) {
        const BlockScale scale = scaler(amax[k]);
        bytes[k] = scale.byte;
        multipliers[k] = scale.multiplier;
      }
      uint2 codes[Tall::columns];
      tall.encode_random(memory.words, multipliers, codes);
#pragma unroll
      for (int k = 0; k < Tall::columns; ++k) put_tall_column(k, codes[k], bytes[k]);
    }
  }

  // The columns, and the rows too if that is the work.
  template <bool Rare>
  __device__ __forceinline__ void encode(const SharedScales<S>* row_scales,
                                         const PatchColumnScales<S>& column_scales) const {
    constexpr bool with_rows = W == PatchWork::both;
    PatchCodes codes[patch_extent];
    float multipliers[patch_extent];
    column_scales.of_all(multipliers);
    if constexpr (in_pairs) {
      if constexpr (with_rows) encode_rows<Rare>(row_scales);
      this->template columns_in_pairs<Rare>(multipliers, codes);
    } else if constexpr (pairs_are_exact) {
      if constexpr (with_rows && !is_random) encode_rows<Rare>(row_scales);
      RandomWords<R> random(p.along_columns.options.keys, p.along_columns.options.offset);
      std::uint32_t pairs[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) pairs[k] = column_scales.of_pair(k);
#pragma unroll
      for (int i = 0; i < patch_extent; ++i) {
        const Philox4 words = random.whole_octet(counter + i * counter_step());
        if constexpr (with_rows && is_random) {
          put_row(i, row_codes<Rare>(raw[i], row_scales[i / 4].of_row(i % 4), words));
        }
        codes[i] = codes_of_pairs<Rare>(raw[i], pairs, words);
      }
      turn_patch<bits>(codes);
    } else {
      RandomWords<R> random(p.along_columns.options.keys, p.along_columns.options.offset);
      std::uint32_t sums[patch_extent];
#pragma unroll
      for (int k = 0; k < patch_extent; ++k) sums[k] = ptx::e2m1_sum_start;
#pragma unroll
      for (int i = 0; i < patch_extent; ++i) {
        float v[8], scaled[8];
        unpack(raw[i], v);
        const Philox4 words = random.whole_octet(counter + i * counter_step());
        if constexpr (with_rows) {
          put_row(i, scaled_codes<Rare>(raw[i], v, row_scales[i / 4].of_row(i % 4), words));
        }
#pragma unroll
        for (int k = 0; k < 8; ++k) {
          scaled[k] = __fmul_rn(v[k], __fmul_rn(multipliers[k], prescale));
        }
        if constexpr (in_lines) {
          // Clamping also keeps the NaN of one column out of its neighbours.
          if constexpr (Rare) saturate_octet<Format>(scaled);
#pragma unroll
          for (int k = 0; k < 8; ++k) sums[k] += ptx::encode_e2m1(scaled[k]) << (4 * i);
        } else {
          codes[i] = encode_patch_row<S, R>(scaled, Rare, 0, words);
        }
      }
      if constexpr (in_lines) {
#pragma unroll
        for (int pair = 0; pair < 4; ++pair) {
          std::uint32_t word[patch_extent], signs[2];
#pragma unroll
          for (int i = 0; i < patch_extent; ++i) word[i] = raw[i].word[pair];
          column_signs(word, signs);
          codes[2 * pair].word[0] = sums[2 * pair] | signs[0];
          codes[2 * pair + 1].word[0] = sums[2 * pair + 1] | signs[1];
        }
      } else {
        turn_patch<bits>(codes);
      }
    }
#pragma unroll
    for (int i = 0; i < patch_extent; ++i) {
      put_column(i, Rare && multipliers[i] < 0.0f ? poisoned() : codes[i]);
    }
  }
};

}  // namespace mxkern::kernels
