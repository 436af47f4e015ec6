// mxkern/kernels/quantize/patch/quantize.cuh: whole tiles of 16-bit elements in registers: both
// directions, the columns alone, square blocks, and a Hadamard transform along the columns.
#pragma once

#include <cstdint>

#include "mxkern/kernels/device/dependents.cuh"
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
  using Base::find_amax, Base::counter, Base::counter_step, Base::p, Base::raw;
  using Base::put_column, Base::put_column_scale, Base::put_row, Base::put_row_scale;
  using Base::stay, Base::stays;
  using typename Base::Format;
  using typename Base::T;
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
      put_row(i, row_codes<Rare>(raw[i], scales[i / 4].of_row(i % 4), words));
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

// Quantizes the whole tiles of x, with vector loads and stores. Both directions share the options
// of what they share: the words of stochastic rounding, the scales of squares. A direction that is
// not wanted has the other's options.
template <class S, class T, Rounding R, PatchWork W>
__global__ void __launch_bounds__(patch_threads, (patch_blocks<S, R, W>))
    quantize_patch_kernel(const __grid_constant__ QuantizeTileParameters p,
                          const __grid_constant__ PatchGrid grid) {
  constexpr bool stays = patch_stays<S, R, W>;
  using Memory = PatchMemory<S, stays>;
  constexpr int bits = S::Format::bits;
  extern __shared__ __align__(128) unsigned char shared[];
  Memory& memory = *reinterpret_cast<Memory*>(shared);
  Patch<S, T, R, W> patch(p, memory);
  const auto row_of = [&](const PatchTile& tile) {
    return std::int64_t{p.backwards ? grid.down - 1 - tile.down : tile.down} * tile_extent;
  };
  const auto begin = [&](const PatchTile& tile) {
    patch.begin(tile.batch, row_of(tile), std::int64_t{tile.across} * tile_extent);
  };
  PatchTile tile = PatchTile::first<stays>(grid);
  if (is_one_of_the_first(p.fetching_blocks) && tile.batch < grid.batch) {
    patch.fetch(tile.batch, row_of(tile), std::int64_t{tile.across} * tile_extent);
  }
  wait_at_start(p.follows);
  if (tile.batch >= grid.batch) return wait_at_end(p.follows);
  begin(tile);
  // While the first tile comes.
  const BlockScaler<S> row_scaler = patch_scaler<S>(p, memory.tensors, 0);
  const BlockScaler<S> column_scaler = patch_scaler<S>(p, memory.tensors, 1);
  if constexpr (Patch<S, T, R, W>::in_halves) {
#pragma unroll 1
    for (int i = 0; i <= column_scaler.table; ++i) {
      fill_half_table({memory.tensors[i], i});
    }
    __syncthreads();
  }
  while (true) {
    const std::int64_t batch = tile.batch, row = row_of(tile);
    const std::int64_t column = std::int64_t{tile.across} * tile_extent;
    patch.finish();
    if constexpr (R == Rounding::stochastic) {
      patch.counter = static_cast<std::uint32_t>(
          ((batch * p.rows + row + patch_row()) * p.columns + column + patch_column()) /
          Philox::elements);
    }
    PackedAmax<T> rows[2][4], pairs[4];
    patch.find_amax(rows, pairs);
    const PatchTile next = tile.next(grid);
    const bool more = stays && next.batch < grid.batch;
    if constexpr (Patch<S, T, R, W>::is_tall) {
      if (W == PatchWork::transform && p.along_rows.codes != nullptr) {
        patch.quantize_rows(rows, row_scaler);
      }
      TallPatch tall;
      tall.load(memory.ahead);
      __syncwarp();
      if (more) begin(next);
      tall.stay();
      patch.quantize_tall(tall, column_scaler);
    } else if constexpr (W == PatchWork::squares) {
      if (more) begin(next);
      patch.quantize_squares(pairs, row_scaler);
    } else {
      if (more) begin(next);
      patch.quantize(rows, pairs, row_scaler, column_scaler, [&] {
        PatchTile same = tile;
        // Not from addresses that would be kept for it, in registers that fewer bits need.
        if (bits < 8) asm volatile("" : "+r"(same.across), "+r"(same.down), "+r"(same.batch));
        begin(same);
      });
    }
    __syncthreads();
    const int line_tile = static_cast<int>(row / tile_extent);
    if (W != PatchWork::columns && p.along_rows.codes != nullptr) {
      store_patch_lines<typename Memory::RowLines>(p.along_rows, batch * p.rows + row,
                                                   column / 8 * bits, memory.rows);
      store_patch_scales<S>(p.along_rows, batch, line_tile, tile.across, memory.row_scales);
    }
    if (p.along_columns.codes != nullptr) {
      store_patch_lines<typename Memory::ColumnLines>(p.along_columns, batch * p.columns + column,
                                                      row / 8 * bits, memory.columns);
      store_patch_scales<S>(p.along_columns, batch, tile.across, line_tile, memory.column_scales);
    }
    if (!more) break;
    __syncthreads();
    tile = next;
  }
  wait_at_end(p.follows);
}

}  // namespace mxkern::kernels
