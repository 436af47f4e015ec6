// mxkern/kernels/quantize/patch/halves.cuh: the codes of NVFP4 patches in half precision.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mxkern/kernels/quantize/patch/scales.cuh"
#include "mxkern/kernels/quantize/columns.cuh"
#include "mxkern/numerics/codec_halves.cuh"

namespace mxkern::kernels {

// Whether a kernel has this way.
template <class S, class T, Rounding R, PatchWork W>
constexpr bool patch_in_halves() {
  if constexpr (!S::has_tensor_scale || !std::is_same_v<T, bfloat16>) return false;
  return R == Rounding::nearest && MXKERN_HAS_CVT_E4M3 && !MXKERN_HAS_CVT_E2M1 &&
         (W == PatchWork::both || W == PatchWork::transform);
}

// Factors by scale byte, in shared memory; one table for each direction.
struct HalfTable {
  HalfFactors of_byte[MultiplierTable::size];
  bool usable;  // the tensor can take this way
};

__device__ __forceinline__ HalfTable& half_table(int direction) {
  __shared__ HalfTable tables[2];
  return tables[direction];
}

// Scale bytes below this one are subnormal with few bits: their blocks may saturate.
inline constexpr int first_half_byte = 4;

// Fills the table of a scaler, whose multipliers are there. All 256 threads call it, and
// synchronize before they use the table.
__device__ inline void fill_half_table(const BlockScaler<NvFp4>& scaler) {
  constexpr int mantissas = 8, quick = 8;
  constexpr int one = E4M3::bias * mantissas;
  __shared__ HalfFactors found[mantissas];
  HalfTable& table = half_table(scaler.table);
  const HalfRange range = HalfRange::of(scaler.tensor);
  const auto significand = [&](unsigned mantissa) {
    const std::uint32_t bits = bits_of(scaler.multiplier(one + mantissa));
    return float_of((bits & float32::mantissa_mask) | bits_of(1.0f));
  };
  const unsigned thread = threadIdx.x, mantissa = thread / 32;
  __syncthreads();  // for the table before
  if (thread == 0) table.usable = false;
  if (!range.fits()) return;
  if (thread < mantissas * quick) {
    const HalfFactors factors = find_half_factors<quick>(significand(thread / quick));
    if (thread % quick == 0) found[thread / quick] = factors;
  }
  __syncthreads();
  if (__syncthreads_or(found[mantissa].bits == 0)) {
    const HalfFactors factors = find_half_factors<32>(significand(mantissa));
    if (thread % 32 == 0) found[mantissa] = factors;
    if (__syncthreads_or(factors.bits == 0)) return;
  }
  if (thread == 0) table.usable = true;
  if (thread < MultiplierTable::size) {
    // Subnormal bytes have the significand that begins with their leading bit.
    const unsigned own = thread < mantissas ? thread % 4 * 2 : thread % mantissas;
    table.of_byte[thread] = thread < first_half_byte
                                ? HalfFactors{0}
                                : move_half_factors(found[own], scaler.multiplier(thread), range);
  }
}

// A block's amax times this is in units of its scale, as BlockScaler has it.
__device__ __forceinline__ float half_encode(const TensorScale& tensor) {
  return __fmul_rn(tensor.encode, 1.0f / E2M1::max_value);
}

// What blocks with these amax are encoded with.
template <int Count>
struct BlocksInHalves {
  std::uint8_t byte[Count];
  HalfFactors factors[Count];
  bool rare;  // one of the blocks saturates, is poisoned, or has a scale of few bits

  __device__ __forceinline__ BlocksInHalves(const std::uint32_t (&amax)[Count], float encode,
                                            int table) {
    // In units of the block scale.
    constexpr float lowest = first_half_byte * E4M3::min_subnormal;
    constexpr float highest = 1.125f * E4M3::max_value;
    rare = false;
#pragma unroll
    for (int k = 0; k < Count; k += 2) {
      const float ratio[2] = {__fmul_rn(float_of(amax[k]), encode),
                              __fmul_rn(float_of(amax[k + 1]), encode)};
      const std::uint32_t bytes = ptx::convert_pair<E4M3>(ratio[0], ratio[1]);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const bool inside =
            bits_of(ratio[i]) - bits_of(lowest) <= bits_of(highest) - bits_of(lowest);
        rare = rare || (!inside && amax[k + i] != 0);
        byte[k + i] = static_cast<std::uint8_t>(bytes >> (8 * i));
        factors[k + i] = half_table(table).of_byte[bytes >> (8 * i) & UE4M3::nan_byte];
      }
    }
  }
};

// The same for a patch along its rows: a lane has those of every other row.
template <class S>
struct HalfRowScales {
  using Shared = SharedScales<S>;
  static constexpr int count = 2 * Shared::rows;
  BlocksInHalves<count> scales;

  template <class T>
  __device__ __forceinline__ static HalfRowScales of(const PackedAmax<T> (&rows)[2][4],
                                                     float encode, int table) {
    std::uint32_t amax[count];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      PackedAmax<T> blocks[Shared::rows];
      share_amax<Shared::lanes>(rows[i], blocks);
#pragma unroll
      for (int k = 0; k < Shared::rows; ++k) amax[i * Shared::rows + k] = blocks[k].value();
    }
    return {BlocksInHalves<count>(amax, encode, table)};
  }

  __device__ __forceinline__ static int row(int k) {
    return k / Shared::rows * 4 + Shared::row(k % Shared::rows);
  }

  __device__ __forceinline__ HalfFactors of_row(int i) const {
    const int k = i / 4 * Shared::rows + i % 4 / Shared::lanes;
    return {__shfl_sync(full_warp, scales.factors[k].bits, i % Shared::lanes, Shared::lanes)};
  }
};

// And along its columns.
template <class S>
struct HalfColumnScales {
  using Shared = PatchColumnScales<S>;
  static constexpr int count = Shared::count;
  BlocksInHalves<count> scales;

  template <class T>
  __device__ __forceinline__ static HalfColumnScales of(const PackedAmax<T> (&pairs)[4],
                                                        float encode, int table) {
    PackedAmax<T> own[4 / Shared::lanes];
    share_amax<Shared::lanes, 4>(pairs, own);
    std::uint32_t amax[count];
#pragma unroll
    for (int k = 0; k < count; ++k) amax[k] = own[k / 2].half(k % 2);
    return {BlocksInHalves<count>(amax, encode, table)};
  }

  // Of the upper or the lower column of a pair.
  __device__ __forceinline__ HalfFactors of_column(int pair, int upper) const {
    const int k = pair / Shared::lanes * 2 + upper;
    return {__shfl_sync(full_warp, scales.factors[k].bits, Shared::lane_of(pair))};
  }
};

// Codes of eight adjacent elements.
__device__ __forceinline__ std::uint32_t encode_half_row(const std::uint32_t (&halves)[4],
                                                         const std::uint32_t (&word)[4],
                                                         HalfFactors factors) {
  const HalfLines lines(HalfFactors::first_of(factors, factors),
                        HalfFactors::second_of(factors, factors));
  std::uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) pairs[i] = lines.encode(halves[i]);
  return ptx::pack_e2m1_pairs(pairs, word);
}

// Codes of eight rows of two adjacent columns, without signs.
__device__ __forceinline__ void encode_half_columns(const std::uint32_t (&halves)[8],
                                                    HalfFactors low, HalfFactors high,
                                                    std::uint32_t (&codes)[2]) {
  const HalfLines lines(HalfFactors::first_of(low, high), HalfFactors::second_of(low, high));
  std::uint32_t part[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t even =
        __byte_perm(lines.encode(halves[4 * i]), lines.encode(halves[4 * i + 2]), 0x6240);
    const std::uint32_t odd =
        __byte_perm(lines.encode(halves[4 * i + 1]), lines.encode(halves[4 * i + 3]), 0x6240);
    part[i] = even + (odd << 4);
  }
  codes[0] = __byte_perm(part[0], part[1], 0x5410);
  codes[1] = __byte_perm(part[0], part[1], 0x7632);
}

}  // namespace mxkern::kernels
