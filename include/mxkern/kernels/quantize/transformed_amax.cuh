// mxkern/kernels/quantize/transformed_amax.cuh: the amax of 16-bit elements and of what a transform
// of 16 along the columns makes of them, in one read.
#pragma once

#include <cstdint>

#include "mxkern/kernels/device/dependents.cuh"
#include "mxkern/kernels/quantize/tensor_amax.cuh"

namespace mxkern::kernels {

// A thread has 16 rows of four adjacent columns at a time, so that no other thread is asked. Every
// row of x starts on 8 bytes.
struct TransformedAmaxParameters {
  static constexpr int rows = 16;
  static constexpr int quad = 4;  // columns
  const void* x;
  std::int64_t batch, groups, quads;  // groups of rows, quads of columns
  std::int64_t batch_stride, row_stride;
  int log2_across;  // quads of a thread block beside each other
  SignMask signs;
  float relative[rows];  // as relative_signs gives them
  float* plain;          // the amax of x, unless null
  float* transformed;
};

inline constexpr int transformed_amax_blocks = 4;  // a multiprocessor; 64 registers a thread

// Without what is not finite, element by element.
template <class T>
__device__ __forceinline__ void finite_amaxes(const T* from, const TransformedAmaxParameters& p,
                                              std::uint32_t& plain, std::uint32_t& transformed) {
  constexpr int rows = TransformedAmaxParameters::rows;
  const auto finite = [](float value) {
    const std::uint32_t magnitude = bits_of(value) & float32::magnitude_mask;
    return float32::is_finite(magnitude) ? magnitude : 0u;
  };
#pragma unroll 1
  for (int k = 0; k < TransformedAmaxParameters::quad; ++k) {
    float v[rows];
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      const float value = to_float(from[i * p.row_stride + k]);
      plain = max(plain, finite(value));
      v[i] = flip_sign(value, p.signs.bit(i));
    }
    hadamard_butterflies(v);
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      const float value = to_float(round_to<T>(__fmul_rn(v[i], hadamard_norm(rows))));
      transformed = max(transformed, finite(value));
    }
  }
}

// The maxima over the thread block, merged into memory.
template <bool Plain>
__device__ __forceinline__ void merge_amaxes(std::uint32_t plain, std::uint32_t transformed,
                                             const TransformedAmaxParameters& p) {
  merge_amax(transformed, p.transformed);
  if constexpr (Plain) {
    __syncthreads();  // for what the first one has left in shared memory
    merge_amax(plain, p.plain);
  }
}

// The grid has thread blocks across (x), down (y), and for matrices (z); the latter two wrap
// around. All of them are resident at once, so that what is read last is the end of x. The kernel
// ahead clears what they merge into; x is complete before this one starts.
template <class T, bool Plain>
__global__ void __launch_bounds__(amax_threads, transformed_amax_blocks)
    transformed_amax_kernel(const __grid_constant__ TransformedAmaxParameters p) {
  constexpr int rows = TransformedAmaxParameters::rows, quad = TransformedAmaxParameters::quad;
  const int down = amax_threads >> p.log2_across;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) << p.log2_across) +
                              (threadIdx.x & ((1u << p.log2_across) - 1));
  std::int64_t first = std::int64_t{blockIdx.y} * down + (threadIdx.x >> p.log2_across);
  if (column >= p.quads) first = p.groups;
  std::uint32_t plain = 0, transformed = 0;
  bool waits = true;
  for (std::int64_t batch = blockIdx.z; batch < p.batch; batch += gridDim.z) {
    for (std::int64_t group = first; group < p.groups; group += std::int64_t{gridDim.y} * down) {
      const T* from = static_cast<const T*>(p.x) + batch * p.batch_stride +
                      group * rows * p.row_stride + column * quad;
      std::uint32_t word[2][rows];
      const T* row = from;
#pragma unroll
      for (int i = 0; i < rows; ++i) {
        const uint2 own = *reinterpret_cast<const uint2*>(row);
        word[0][i] = own.x;
        word[1][i] = own.y;
        row += p.row_stride;
      }
      if (waits) {
        wait_for_kernels_ahead();
        let_dependents_start();
        waits = false;
      }
      PackedAmax<T> largest = {0};
      float sums = 0.0f;
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        float v[2][rows];
#pragma unroll
        for (int i = 0; i < rows; ++i) {
          const float2 both = unpack_pair<T>(word[k][i]);
          v[0][i] = both.x;
          v[1][i] = both.y;
        }
        sums = fmaxf(sums, hadamard_magnitude(v[0], p.relative));
        sums = fmaxf(sums, hadamard_magnitude(v[1], p.relative));
        if constexpr (Plain) {
#pragma unroll
          for (int i = 0; i < rows; i += 2) {
            largest.bits = __vimax3_u16x2(largest.bits, magnitudes_of<T>(word[k][i]),
                                          magnitudes_of<T>(word[k][i + 1]));
          }
        }
      }
      // Rounding keeps the order, so that only the largest sum has to be rounded.
      const float rounded = to_float(round_to<T>(__fmul_rn(sums, hadamard_norm(rows))));
      if (float32::is_finite(bits_of(rounded)) && float32::is_finite(largest.value())) {
        plain = max(plain, largest.value());
        transformed = max(transformed, bits_of(rounded));
      } else {
        finite_amaxes(from, p, plain, transformed);
      }
    }
  }
  if (waits) {
    wait_for_kernels_ahead();
    let_dependents_start();
  }
  merge_amaxes<Plain>(plain, transformed, p);
}

}  // namespace mxkern::kernels
