// mxkern/kernels/quantize/patch/scales.cuh: the scales of patches along their columns, and who
// finds them.
#pragma once

#include <cstdint>

#include "mxkern/kernels/quantize/patch/tile.cuh"
#include "mxkern/kernels/quantize/four_octets.cuh"

namespace mxkern::kernels {

// The scales of eight adjacent columns over a block of rows, worked out by the lanes of a block
// together: four pairs of columns, of which lane l of a block's lanes has l, l + Lanes, ...
template <class S>
struct PatchColumnScales {
  static constexpr int lanes = S::block / patch_extent;
  static constexpr int count = patch_extent / lanes;
  std::uint8_t byte[count];
  float multiplier[count];
  std::uint32_t amax[count];

  // `factor`: what elements are yet to be multiplied with, a power of two.
  template <class T>
  __device__ __forceinline__ PatchColumnScales(const PackedAmax<T> (&pairs)[4],
                                               const BlockScaler<S>& scaler, float factor = 1.0f) {
    PackedAmax<T> own[4 / lanes];
    share_amax<lanes, 4>(pairs, own);
#pragma unroll
    for (int k = 0; k < count; ++k) {
      amax[k] = own[k / 2].half(k % 2);
      const BlockScale scale = scaler(bits_of(__fmul_rn(float_of(amax[k]), factor)));
      byte[k] = scale.byte;
      multiplier[k] = __fmul_rn(scale.multiplier, factor);
    }
  }

  // Whether a power of two that is left out of elements can make no difference: what it would make
  // subnormal has the code zero, and nothing became infinite without it.
  __device__ __forceinline__ bool spares_factor() const {
    bool all = true;
#pragma unroll
    for (int k = 0; k < count; ++k) {
      constexpr std::uint32_t lowest = bits_of(0x1p-80f), highest = bits_of(0x1p125f);
      all = all && (amax[k] == 0 || amax[k] - lowest <= highest - lowest);
    }
    return all;
  }

  // Which of the eight columns this lane's scale k belongs to.
  __device__ static int column(int k) { return (patch_down() % lanes + k / 2 * lanes) * 2 + k % 2; }

  // The multipliers of a pair of columns, both as bfloat16, which holds all powers of two.
  __device__ __forceinline__ std::uint32_t of_pair(int pair) const {
    const int k = pair / lanes * 2;
    const std::uint32_t both =
        __byte_perm(bits_of(multiplier[k]), bits_of(multiplier[k + 1]), 0x7632);
    return __shfl_sync(full_warp, both, lane_of(pair));
  }

  __device__ __forceinline__ void of_all(float (&all)[patch_extent]) const {
#pragma unroll
    for (int pair = 0; pair < 4; ++pair) {
      if constexpr (S::has_tensor_scale) {
        const int k = pair / lanes * 2;
        all[2 * pair] = __shfl_sync(full_warp, multiplier[k], lane_of(pair));
        all[2 * pair + 1] = __shfl_sync(full_warp, multiplier[k + 1], lane_of(pair));
      } else {
        const std::uint32_t both = of_pair(pair);
        all[2 * pair] = float_of(both << 16);
        all[2 * pair + 1] = float_of(both & 0xFFFF0000u);
      }
    }
  }

  // The lane that has the scales of a pair.
  __device__ __forceinline__ static int lane_of(int pair) {
    return static_cast<int>(threadIdx.x % 32 & ~(4u * (lanes - 1))) | pair % lanes * 4;
  }
};

// Whether one of a lane's blocks is poisoned, or saturates: what the long way is for.
template <class S, Rounding R, int Count>
__device__ __forceinline__ bool is_rare(const std::uint32_t (&amax)[Count],
                                        const float (&multiplier)[Count],
                                        const BlockScaler<S>& scaler) {
  bool any = false;
#pragma unroll
  for (int k = 0; k < Count; ++k) {
    any = any || multiplier[k] < 0.0f;
    if (scaler.saturates()) any = any || block_saturates<S, R>(amax[k], multiplier[k]);
  }
  return any;
}

// Whether a warp takes the long way. With random words, whose code is long, there is only that one.
template <Rounding R>
__device__ __forceinline__ bool warp_is_rare(bool lane_is_rare) {
  if constexpr (R == Rounding::stochastic) return true;
  return __any_sync(full_warp, lane_is_rare);
}

// The scaler of one direction. Half of the threads work NVFP4's tensor scales and tables out for
// all of them, when direction 0 is asked for.
template <class S>
__device__ __forceinline__ BlockScaler<S> patch_scaler(const QuantizeTileParameters& p,
                                                       TensorScale (&tensors)[2], int direction) {
  const TileOutput &rows = p.along_rows, &columns = p.along_columns;
  if constexpr (S::has_tensor_scale) {
    if (direction == 0) {
      if (threadIdx.x < MultiplierTable::size) {
        const BlockScaler<S> first = block_scaler<S>(rows.options, rows.tensor_scale);
        const BlockScaler<S> second =
            other_block_scaler<S>(columns.options, columns.tensor_scale, rows.options, first);
        if (threadIdx.x == 0) {
          tensors[0] = first.tensor;
          tensors[1] = second.tensor;
        }
      }
      __syncthreads();
    }
    return {tensors[direction], same_tensor_scale(rows.options, columns.options) ? 0 : direction,
            (direction == 0 ? rows : columns).options.block_error};
  } else {
    return {(direction == 0 ? rows : columns).options.rule};
  }
}

}  // namespace mxkern::kernels
