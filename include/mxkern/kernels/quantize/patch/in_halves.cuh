// mxkern/kernels/quantize/patch/in_halves.cuh: the ways of a patch of bfloat16 to NVFP4 through
// half precision.
#pragma once

#include <cstdint>

#include "mxkern/kernels/quantize/patch/halves.cuh"
#include "mxkern/kernels/quantize/patch/lane.cuh"

namespace mxkern::kernels {

// What returns whether it has been done can be asked only for tensors and blocks that are not rare.
template <class S, class Element, Rounding R, PatchWork W>
struct PatchInHalves : PatchLane<S, Element, R, W> {
  using Base = PatchLane<S, Element, R, W>;
  using Base::Base, Base::p, Base::raw;
  using Base::put_column, Base::put_column_scale, Base::put_row, Base::put_row_scale;
  using Base::put_tall_column;
  using typename Base::T;
  using typename Base::Tall;

  // What half precision takes, if a tensor and all blocks of the warp can have it.
  __device__ __forceinline__ bool rows_in_halves(const PackedAmax<T> (&rows)[2][4],
                                                 const BlockScaler<S>& scaler) const {
    if (!half_table(scaler.table).usable) return false;
    const auto scales = HalfRowScales<S>::of(rows, half_encode(scaler.tensor), scaler.table);
    if (warp_is_rare<R>(scales.scales.rare)) return false;
    encode_half_rows(scales, HalfRange::of(scaler.tensor).factor());
    return true;
  }

  // Transformed columns: a lane has whole blocks of them.
  __device__ __forceinline__ void tall_in_halves(const Tall& tall,
                                                 const std::uint32_t (&amax)[Tall::columns],
                                                 const BlockScaler<S>& scaler) const {
    constexpr int count = Tall::columns;
    const BlocksInHalves<count> scales(amax, half_encode(scaler.tensor), scaler.table);
    if (!half_table(scaler.table).usable || warp_is_rare<R>(scales.rare)) {
#pragma unroll
      for (int k = 0; k < count; ++k) {
        const BlockScale scale = scaler(amax[k]);
        put_tall_column(k, tall.encode_any(k, scale.multiplier), scale.byte);
      }
      return;
    }
    const std::uint32_t factor = HalfRange::of(scaler.tensor).factor();
#pragma unroll
    for (int k = 0; k < count; k += 2) {
      uint2 codes[2];
      tall.encode(k / 2, scales.factors[k], scales.factors[k + 1], factor, codes);
      put_tall_column(k, codes[0], scales.byte[k]);
      put_tall_column(k + 1, codes[1], scales.byte[k + 1]);
    }
  }

  // Both directions under one tensor scale. Elements become halves where they are.
  __device__ __forceinline__ bool both_in_halves(const PackedAmax<T> (&rows)[2][4],
                                                 const PackedAmax<T> (&pairs)[4],
                                                 const BlockScaler<S>& scaler, int column_table) {
    if (!half_table(scaler.table).usable || column_table != scaler.table) return false;
    const float encode = half_encode(scaler.tensor);
    const auto row_scales = HalfRowScales<S>::of(rows, encode, scaler.table);
    const auto column_scales = HalfColumnScales<S>::of(pairs, encode, scaler.table);
    if (warp_is_rare<R>(row_scales.scales.rare || column_scales.scales.rare)) return false;
    const std::uint32_t factor = HalfRange::of(scaler.tensor).factor();
#pragma unroll
    for (int k = 0; k < PatchColumnScales<S>::count; ++k) {
      put_column_scale(PatchColumnScales<S>::column(k), column_scales.scales.byte[k]);
    }
#pragma unroll
    for (int k = 0; k < HalfRowScales<S>::count; ++k) {
      put_row_scale(HalfRowScales<S>::row(k), row_scales.scales.byte[k]);
    }
    std::uint32_t signs[patch_extent];
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      std::uint32_t word[patch_extent], two[2];
#pragma unroll
      for (int i = 0; i < patch_extent; ++i) word[i] = raw[i].word[pair];
      column_signs(word, two);
      signs[2 * pair] = two[0];
      signs[2 * pair + 1] = two[1];
    }
#pragma unroll
    for (int i = 0; i < patch_extent; ++i) {
      std::uint32_t pairs_of_row[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) pairs_of_row[k] = to_halves(raw[i].word[k], factor);
      put_row(i, {{encode_half_row(pairs_of_row, raw[i].word, row_scales.of_row(i)), 0}});
#pragma unroll
      for (int k = 0; k < 4; ++k) raw[i].word[k] = pairs_of_row[k];
    }
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      std::uint32_t own[patch_extent], codes[2];
#pragma unroll
      for (int i = 0; i < patch_extent; ++i) own[i] = raw[i].word[pair];
      encode_half_columns(own, column_scales.of_column(pair, 0), column_scales.of_column(pair, 1),
                          codes);
#pragma unroll
      for (int k = 0; k < 2; ++k) put_column(2 * pair + k, {{codes[k] | signs[2 * pair + k], 0}});
    }
    return true;
  }

  __device__ __forceinline__ void encode_half_rows(const HalfRowScales<S>& scales,
                                                   std::uint32_t factor) const {
#pragma unroll
    for (int k = 0; k < HalfRowScales<S>::count; ++k)
      put_row_scale(HalfRowScales<S>::row(k), scales.scales.byte[k]);
#pragma unroll
    for (int i = 0; i < patch_extent; ++i) {
      std::uint32_t halves[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) halves[k] = to_halves(raw[i].word[k], factor);
      put_row(i, {{encode_half_row(halves, raw[i].word, scales.of_row(i)), 0}});
    }
  }
};

}  // namespace mxkern::kernels
