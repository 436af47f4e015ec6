// mxkern/kernels/quantize_four.cuh: an octet in each of four rows to codes and scales.
#pragma once

#include <cstdint>

#include "mxkern/kernels/quantize_octet.cuh"
#include "mxkern/kernels/row_grid.cuh"

namespace mxkern::kernels {

// Where the results of the four rows go. Row i exists if i * 32 < rows, its scale if
// i * 32 < scale_rows.
struct FourRows {
  std::uint8_t* codes;  // the first of the rows
  std::int64_t code_step;
  std::int64_t code_start;  // of the octet in its row
  std::int64_t code_row_bytes;
  bool whole;  // all four rows exist, and the octet is stored with store_whole_codes
  int rows;
  std::uint8_t* scales;  // of the octet's block in the first of the rows
  std::int64_t scale_step;
  int scale_rows;
  std::int64_t index;  // logical index of the octet in the first of the rows
  std::int64_t index_step;
  bool inside;  // the columns of the octet exist: what pads a block is not transformed
};

// From one amax an octet and row to one a block and row, shared out: of the four rows, the lane at
// position l of a block's lanes gets l, l + Lanes, ...
template <int LaneCount>
__device__ __forceinline__ void share_amax(const std::uint32_t (&octets)[4],
                                           std::uint32_t (&blocks)[4 / LaneCount]) {
  const bool odd = (threadIdx.x & 1) != 0;
  std::uint32_t kept[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t given = odd ? octets[2 * i] : octets[2 * i + 1];
    const std::uint32_t own = odd ? octets[2 * i + 1] : octets[2 * i];
    kept[i] = max(own, __shfl_xor_sync(full_warp, given, 1));
  }
  if constexpr (LaneCount == 2) {
    blocks[0] = kept[0];
    blocks[1] = kept[1];
  } else {
    const bool upper = (threadIdx.x & 2) != 0;
    const std::uint32_t given = upper ? kept[0] : kept[1];
    const std::uint32_t own = upper ? kept[1] : kept[0];
    blocks[0] = max(own, __shfl_xor_sync(full_warp, given, 2));
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

  __device__ __forceinline__ SharedScales(const std::uint32_t (&octets)[rows_per_thread],
                                          const OctetOptions& options, const TensorScale& tensor,
                                          const SquareScales& squares) {
    std::uint32_t amax[rows];
    share_amax<lanes>(octets, amax);
#pragma unroll
    for (int k = 0; k < rows; ++k) {
      const BlockScale scale = squares.fixed ? squares.template scale<S>(row(k), amax[k], tensor)
                                             : fast_block_scale<S>(amax[k], options.rule, tensor);
      byte[k] = scale.byte;
      multiplier[k] = float32::is_finite(amax[k]) ? scale.multiplier : poisoned_multiplier;
    }
  }

  // Which of the four rows this lane's scale k belongs to.
  __device__ static int row(int k) { return static_cast<int>(threadIdx.x) % lanes + k * lanes; }

  // The multiplier of row i, from the lane that has it.
  __device__ __forceinline__ float of_row(int i) const {
    return __shfl_sync(full_warp, multiplier[i / lanes], i % lanes, lanes);
  }
};

// Transforms the octets of four rows where that is wanted, and finds their amax.
template <class T>
__device__ __forceinline__ void four_amax(RawOctet<T> (&raw)[rows_per_thread],
                                          const OctetOptions& options, bool inside,
                                          std::uint32_t (&octets)[rows_per_thread]) {
  if (options.hadamard_size != 0) {
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) {
      float v[8];
      unpack(raw[i], v);
      hadamard_octet<T>(v, threadIdx.x, options.hadamard_size, options.hadamard_signs, false);
      if (inside) raw[i] = pack<T>(v);
    }
  }
#pragma unroll
  for (int i = 0; i < rows_per_thread; ++i) octets[i] = octet_amax(raw[i]);
}

// Where the results of four rows go that are all there and stored whole.
struct FourWholeRows {
  std::uint8_t* codes;  // of the octet's row
  std::int64_t code_step;
  std::int64_t code_start;  // of the octet in its row
  std::uint8_t* scales;     // of the octet's block in the first of the rows that this lane has
  std::int64_t scale_step;
  std::int64_t index;  // logical index of the octet in the first of the rows
  std::int64_t index_step;
};

// Quantizes and stores without a question asked. All lanes of a warp call it; adjacent lanes hold
// adjacent octets.
template <class S, class T, Rounding R>
__device__ __forceinline__ void quantize_four_whole_rows(RawOctet<T> (&raw)[rows_per_thread],
                                                         const FourWholeRows& out,
                                                         const OctetOptions& options,
                                                         const TensorScale& tensor) {
  using Scales = SharedScales<S>;
  std::uint32_t octets[rows_per_thread];
  four_amax(raw, options, true, octets);
  const Scales scales(octets, options, tensor, SquareScales{});
#pragma unroll
  for (int k = 0; k < Scales::rows; ++k) {
    out.scales[k * Scales::lanes * out.scale_step] = scales.byte[k];
  }
  std::uint8_t* row = out.codes;
#pragma unroll
  for (int i = 0; i < rows_per_thread; ++i) {
    std::uint32_t words[8] = {};
    if constexpr (R == Rounding::stochastic) {
      octet_words(options, out.index + i * out.index_step, 1, words);
    }
    const Octet codes = quantize_octet<S, R>(raw[i], float_of(octets[i]), scales.of_row(i), words);
    store_whole_codes<S::Format::bits>(row, out.code_start, codes);
    row += out.code_step;
  }
}

// Quantizes and stores. All lanes of a warp call it; adjacent lanes hold adjacent octets. `squares`
// says whether the scales are those of squares instead of those of the octets' own blocks.
template <class S, class T, Rounding R>
__device__ __forceinline__ void quantize_four_rows(RawOctet<T> (&raw)[rows_per_thread],
                                                   const FourRows& out, const OctetOptions& options,
                                                   const TensorScale& tensor,
                                                   const SquareScales& squares) {
  using Scales = SharedScales<S>;
  constexpr int octet_bytes = S::Format::bits;
  std::uint32_t octets[rows_per_thread];
  if (squares.used) {
#pragma unroll
    for (int i = 0; i < rows_per_thread; ++i) octets[i] = squares.amax[i];
  } else {
    four_amax(raw, options, out.inside, octets);
  }
  const Scales scales(octets, options, tensor, squares);
  const bool chosen_later = S::has_tensor_scale && options.four_over_six && !squares.used;
  if (!chosen_later) {
#pragma unroll
    for (int k = 0; k < Scales::rows; ++k) {
      const int i = Scales::row(k);
      if (i * row_spacing < out.scale_rows) out.scales[i * out.scale_step] = scales.byte[k];
    }
  }
#pragma unroll
  for (int i = 0; i < rows_per_thread; ++i) {
    const float multiplier = scales.of_row(i);
    std::uint32_t words[8] = {};
    if constexpr (R == Rounding::stochastic) {
      octet_words(options, out.index + i * out.index_step, 1, words);
    }
    Octet codes = quantize_octet<S, R>(raw[i], float_of(octets[i]), multiplier, words);
    if constexpr (S::has_tensor_scale) {
      if (chosen_later) {
        float v[8];
        unpack(raw[i], v);
        const std::uint8_t byte =
            better_of_two<S, R>(v, lanes_amax<Scales::lanes>(octets[i]), tensor, words, codes);
        if (Scales::row(0) == 0 && i * row_spacing < out.scale_rows) {
          out.scales[i * out.scale_step] = byte;
        }
      }
    }
    std::uint8_t* row = out.codes + i * out.code_step;
    if (out.whole) {
      store_whole_codes<octet_bytes>(row, out.code_start, codes);
    } else if (i * row_spacing < out.rows) {
      store_codes<octet_bytes>(row, out.code_start, out.code_row_bytes, codes);
    }
  }
}

}  // namespace mxkern::kernels
