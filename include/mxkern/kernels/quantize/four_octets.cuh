// mxkern/kernels/quantize/four_octets.cuh: an octet in each of four rows to codes and scales.
#pragma once

#include <cstdint>

#include "mxkern/kernels/quantize/four_over_six.cuh"
#include "mxkern/kernels/quantize/octet.cuh"
#include "mxkern/kernels/device/row_grid.cuh"

namespace mxkern::kernels {

// Where the results of the four rows go. Row i exists if i * 32 < rows, its scale if
// i * 32 < scale_rows.
struct FourRows {
  std::uint8_t* codes;  // the first of the rows
  std::int64_t code_step;
  std::int64_t code_start;  // of the octet in its row
  std::int64_t code_row_bytes;
  bool whole;  // octets are there or not, as a whole, and stored with store_whole_codes
  int rows;
  std::uint8_t* scales;  // of the octet's block in the first of the rows
  std::int64_t scale_step;
  int scale_rows;
  std::int64_t index;  // logical index of the octet in the first of the rows
  std::int64_t index_step;
};

// From one amax a lane and row to one a block and row, shared out: of the four rows, the lane at
// position l of a block's lanes, which lie `Stride` lanes apart, gets l, l + Lanes, ...
template <int LaneCount, int Stride = 1, class T>
__device__ __forceinline__ void share_amax(const PackedAmax<T> (&octets)[4],
                                           PackedAmax<T> (&blocks)[4 / LaneCount]) {
  const auto shared = [](PackedAmax<T> first, PackedAmax<T> second, unsigned lane) {
    const bool upper = (threadIdx.x & lane) != 0;
    const std::uint32_t given = upper ? first.bits : second.bits;
    const PackedAmax<T> own = {upper ? second.bits : first.bits};
    return own.higher({__shfl_xor_sync(full_warp, given, lane)});
  };
  const PackedAmax<T> low = shared(octets[0], octets[1], Stride);
  const PackedAmax<T> high = shared(octets[2], octets[3], Stride);
  if constexpr (LaneCount == 2) {
    blocks[0] = low;
    blocks[1] = high;
  } else {
    blocks[0] = shared(low, high, 2 * Stride);
  }
}

// The scales of the blocks of four rows, worked out by the lanes of a block together: lane l has
// the rows l, l + Lanes, ...; `byte` is for memory, `multiplier` goes to the other lanes.
template <class S>
struct SharedScales {
  static constexpr int lanes = S::block / 8;
  static constexpr int rows = rows_per_thread / lanes;
  std::uint8_t byte[rows];
  float multiplier[rows];
  std::uint32_t amax[rows];

  // `scale_of` is a BlockScaler, or what stands for it.
  template <class T, class ScaleOf>
  __device__ __forceinline__ SharedScales(const PackedAmax<T> (&octets)[rows_per_thread],
                                          const ScaleOf& scale_of) {
    PackedAmax<T> blocks[rows];
    share_amax<lanes>(octets, blocks);
#pragma unroll
    for (int k = 0; k < rows; ++k) {
      amax[k] = blocks[k].value();
      const BlockScale scale = scale_of(amax[k]);
      byte[k] = scale.byte;
      multiplier[k] = scale.multiplier;
    }
  }

  // Which of the four rows this lane's scale k belongs to.
  __device__ static int row(int k) { return static_cast<int>(threadIdx.x % lanes) + k * lanes; }

  // Whether one of the warp's blocks saturates.
  template <Rounding R>
  __device__ __forceinline__ bool saturate(const BlockScaler<S>& scaler) const {
    if (!scaler.saturates()) return false;
    bool any = false;
#pragma unroll
    for (int k = 0; k < rows; ++k) any = any || block_saturates<S, R>(amax[k], multiplier[k]);
    return __any_sync(full_warp, any);
  }

  __device__ __forceinline__ bool has_poisoned() const {
    bool any = false;
#pragma unroll
    for (int k = 0; k < rows; ++k) any = any || multiplier[k] < 0.0f;
    return any;
  }

  // The multiplier of row i, from the lane that has it.
  __device__ __forceinline__ float of_row(int i) const {
    return __shfl_sync(full_warp, multiplier[i / lanes], i % lanes, lanes);
  }

  // The same for its byte.
  __device__ __forceinline__ std::uint8_t byte_of_row(int i) const {
    const std::uint32_t own = byte[i / lanes];
    return static_cast<std::uint8_t>(__shfl_sync(full_warp, own, i % lanes, lanes));
  }
};

// The same for four rows whose scales are known.
template <class S>
struct KnownScales {
  std::uint8_t byte[SharedScales<S>::rows];
  float multiplier[rows_per_thread];
  std::uint32_t amax[rows_per_thread];

  template <Rounding R>
  __device__ __forceinline__ bool saturate(const BlockScaler<S>& scaler) const {
    if (!scaler.saturates()) return false;
    bool any = false;
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) {
      any = any || block_saturates<S, R>(amax[i], multiplier[i]);
    }
    return __any_sync(full_warp, any);
  }
  __device__ __forceinline__ bool has_poisoned() const {
    bool any = false;
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) any = any || multiplier[i] < 0.0f;
    return any;
  }
  __device__ __forceinline__ float of_row(int i) const { return multiplier[i]; }
};

template <class T>
__device__ __forceinline__ void packed_amax(const RawOctet<T> (&raw)[rows_per_thread],
                                            PackedAmax<T> (&octets)[rows_per_thread]) {
#pragma unroll
  for (int i = 0; i < rows_per_thread; ++i) octets[i] = packed_amax(raw[i]);
}

// Transforms the octets of four rows where that is wanted, and finds their amax. `inside`: their
// columns exist; what pads a block is not transformed.
template <class T>
__device__ __forceinline__ void four_amax(RawOctet<T> (&raw)[rows_per_thread],
                                          const OctetOptions& options, bool inside,
                                          PackedAmax<T> (&octets)[rows_per_thread]) {
  if (options.hadamard_size != 0) {
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) {
      float v[8];
      unpack(raw[i], v);
      hadamard_octet<T>(v, threadIdx.x, options.hadamard_size, options.hadamard_signs, false);
      if (inside) raw[i] = pack<T>(v);
    }
  }
  packed_amax(raw, octets);
}

// Where the results of four rows go that are all there and stored whole.
struct FourWholeRows {
  std::uint8_t* codes;  // where this lane stores in the first of the rows: see whole_codes_start
  std::int64_t code_step;
  std::uint8_t* scales;  // of the octet's block in the first of the rows that this lane has
  std::int64_t scale_step;
  std::uint32_t counter;  // the octet's logical index in the first of the rows, in eights
  std::uint32_t counter_step;
};

// Quantizes and stores without a question asked; random words are whole. All lanes of a warp call
// it; adjacent lanes hold adjacent octets.
template <class S, class T, Rounding R, class Scales>
__device__ __forceinline__ void quantize_four_whole_rows(const RawOctet<T> (&raw)[rows_per_thread],
                                                         const Scales& scales,
                                                         const BlockScaler<S>& scaler,
                                                         RandomWords<R>& random,
                                                         const FourWholeRows& out) {
  constexpr int lanes = SharedScales<S>::lanes;
#pragma unroll
  for (int k = 0; k < SharedScales<S>::rows; ++k) {
    out.scales[k * lanes * out.scale_step] = scales.byte[k];
  }
  // With random words the question whether blocks saturate costs more than the answer, and the one
  // about poisoned blocks is asked once.
  constexpr bool is_random = R == Rounding::stochastic;
  const bool saturate =
      is_random ? scaler.saturates() : scales.template saturate<Rounding::nearest>(scaler);
  std::uint8_t* to = out.codes;
#pragma unroll
  for (int i = 0; i < rows_per_thread; ++i) {
    const Philox4 words = random.whole_octet(out.counter + i * out.counter_step);
    const Octet codes = quantize_octet<S, R, is_random>(raw[i], scales.of_row(i), saturate, words);
    store_whole_codes<S::Format::bits>(to, codes);
    to += out.code_step;
  }
  if (is_random && __any_sync(full_warp, scales.has_poisoned())) {
    to = out.codes;
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) {
      const bool poisoned = scales.of_row(i) < 0.0f;
      store_whole_codes<S::Format::bits>(to, poison_octet<typename S::Format>, poisoned);
      to += out.code_step;
    }
  }
}

// Quantizes and stores. All lanes of a warp call it; adjacent lanes hold adjacent octets.
// `choose`: 4over6 chooses the scale of each block anew.
template <class S, class T, Rounding R, class Scales>
__device__ __forceinline__ void quantize_four_rows(const RawOctet<T> (&raw)[rows_per_thread],
                                                   const Scales& scales,
                                                   const BlockScaler<S>& scaler, bool choose,
                                                   RandomWords<R>& random, const FourRows& out) {
  constexpr int octet_bytes = S::Format::bits;
  constexpr int lanes = SharedScales<S>::lanes;
  if (!choose) {
#pragma unroll
    for (int k = 0; k < SharedScales<S>::rows; ++k) {
      const int i = SharedScales<S>::row(k);
      if (i * row_spacing < out.scale_rows) out.scales[i * out.scale_step] = scales.byte[k];
    }
  }
#pragma unroll
  for (int i = 0; i < rows_per_thread; ++i) {
    const Philox4 words = random.octet(out.index + i * out.index_step);
    Octet codes = 0;
    if (!choose) codes = quantize_octet<S, R>(raw[i], scales.of_row(i), true, words);
    if constexpr (S::has_tensor_scale) {
      if (choose) {
        const std::uint8_t byte = better_of_two<S, R>(raw[i], lanes_amax<lanes>(octet_amax(raw[i])),
                                                      scaler, words, codes);
        if (SharedScales<S>::row(0) == 0 && i * row_spacing < out.scale_rows) {
          out.scales[i * out.scale_step] = byte;
        }
      }
    }
    std::uint8_t* row = out.codes + i * out.code_step;
    if (out.whole) {
      const bool inside =
          i * row_spacing < out.rows && out.code_start + octet_bytes <= out.code_row_bytes;
      store_whole_codes<octet_bytes>(row + whole_codes_start<octet_bytes>(out.code_start), codes,
                                     inside);
    } else if (i * row_spacing < out.rows) {
      store_codes<octet_bytes>(row, out.code_start, out.code_row_bytes, codes);
    }
  }
}

}  // namespace mxkern::kernels
