// mxkern/kernels/quantize/block_scaler.cuh: the scales of blocks, with what all blocks share done
// once.
#pragma once

#include <cstdint>

#include "mxkern/kernels/quantize/block_amax.cuh"
#include "mxkern/numerics/block_scale.h"
#include "mxkern/numerics/codec_ptx.cuh"

namespace mxkern::kernels {

// What stands for the multiplier of a poisoned block; a real one is never negative.
inline constexpr float poisoned_multiplier = -1.0f;

// E8M0Rule::bytes of one block. Kernels get the rule as an argument: instructions read their
// constants where arguments lie.
__device__ __forceinline__ std::int32_t e8m0_byte(const E8M0Rule& rule, std::uint32_t amax) {
  const std::uint32_t bits = bits_of(__fmul_rn(float_of(amax), rule.factor));
  const bool subnormal = bits <= float32::mantissa_mask;
  const std::uint32_t sum = bits + (subnormal ? rule.subnormal_addend : rule.addend);
  const auto field = static_cast<std::int32_t>(sum >> float32::mantissa_bits);
  return __viaddmin_s32_relu(field, -rule.exponent, E8M0::max_byte);
}

// 2^(127 - byte) for 0 <= byte <= 254.
__device__ __forceinline__ float e8m0_multiplier(std::int32_t byte) {
  const std::int32_t normal = (2 * E8M0::bias - byte) << float32::mantissa_bits;
  return float_of(static_cast<std::uint32_t>(max(normal, 1 << (float32::mantissa_bits - 1))));
}

// Multipliers of NVFP4 by scale byte, in shared memory: a division for each of 128 bytes instead of
// one for each block.
struct MultiplierTable {
  static constexpr int size = 128;
  float of_byte[size];
};

// One for each direction of a kernel. A function of its own: through a pointer the compiler would
// not see that they are in shared memory.
__device__ __forceinline__ MultiplierTable& multiplier_table(int direction) {
  __shared__ MultiplierTable tables[2];
  return tables[direction];
}

// The scales of blocks of scheme S.
template <class S, bool HasTensorScale = S::has_tensor_scale>
struct BlockScaler {
  static_assert(S::ScaleFormat::is_power_of_two);
  const E8M0Rule& rule;

  __device__ __forceinline__ bool saturates() const { return rule.saturates; }

  // The scale of a block whose largest magnitude has the float32 bits `amax`.
  __device__ __forceinline__ BlockScale operator()(std::uint32_t amax) const {
    const std::int32_t byte = e8m0_byte(rule, amax);
    const bool finite = float32::is_finite(amax);
    return {static_cast<std::uint8_t>(finite ? byte : E8M0::nan_byte),
            finite ? e8m0_multiplier(byte) : poisoned_multiplier};
  }

  // The same where nothing is shared with other threads.
  __device__ __forceinline__ BlockScale alone(std::uint32_t amax) const { return (*this)(amax); }
};

template <class S>
struct BlockScaler<S, true> {
  TensorScale tensor;
  int table;
  BlockError error = BlockError::mse;  // by which 4over6 chooses

  __device__ __forceinline__ bool saturates() const { return true; }

  __device__ __forceinline__ float multiplier(std::uint32_t byte) const {
    return multiplier_table(table).of_byte[byte];
  }

  __device__ __forceinline__ float computed_multiplier(std::uint32_t byte) const {
#if MXKERN_HAS_CVT_E4M3
    const float scale = ptx::widen_pair<E4M3>(byte).x;
#else
    const float scale = UE4M3::decode(static_cast<std::uint8_t>(byte));
#endif
    const float multiplier = __frcp_rn(__fmul_rn(scale, tensor.decode));
    return byte == UE4M3::nan_byte ? poisoned_multiplier : lower_of(multiplier, float32::largest());
  }

  // All threads of a block call it once, and synchronize before they use the scaler.
  __device__ void fill() const {
    MultiplierTable& filled = multiplier_table(table);
    for (int i = threadIdx.x; i < MultiplierTable::size; i += blockDim.x) {
      filled.of_byte[i] = computed_multiplier(static_cast<std::uint32_t>(i));
    }
  }

  // The same by the first `Threads` threads of a block.
  template <int Threads>
  __device__ __forceinline__ void fill() const {
    MultiplierTable& filled = multiplier_table(table);
#pragma unroll
    for (int i = 0; i < MultiplierTable::size; i += Threads) {
      const std::uint32_t byte = i + threadIdx.x;
      filled.of_byte[byte] = computed_multiplier(byte);
    }
  }

  // The scale byte of a block whose largest magnitude has the float32 bits `amax`.
  __device__ __forceinline__ std::uint32_t byte(std::uint32_t amax) const {
    const float magnitude = float_of(amax);
    const float ratio = __fmul_rn(magnitude, __fmul_rn(tensor.encode, 1.0f / E2M1::max_value));
#if MXKERN_HAS_CVT_E4M3
    // Zero times what is not finite is a NaN, and a NaN becomes the NaN byte.
    const float poisoned = __fmaf_rn(magnitude, 0.0f, ratio);
    return ptx::convert_pair<E4M3>(poisoned, 0.0f) & 0xFFu;
#else
    return float32::is_finite(amax) ? encode<E4M3>(lower_of(ratio, float32::largest()))
                                    : UE4M3::nan_byte;
#endif
  }

  __device__ __forceinline__ BlockScale operator()(std::uint32_t amax) const {
    const std::uint32_t own = byte(amax);
    return {static_cast<std::uint8_t>(own), multiplier(own)};
  }

  // The same without the table.
  __device__ __forceinline__ BlockScale alone(std::uint32_t amax) const {
    const std::uint32_t own = byte(amax);
    return {static_cast<std::uint8_t>(own), computed_multiplier(own)};
  }
};

// What stands for a scaler where nothing is shared with other threads.
template <class S>
struct WithoutTable {
  const BlockScaler<S>& scaler;

  __device__ __forceinline__ BlockScale operator()(std::uint32_t amax) const {
    return scaler.alone(amax);
  }
};

}  // namespace mxkern::kernels
