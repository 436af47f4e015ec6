// cpu/any/kernels.h: what each instruction set implements for formats that are known at run time,
// as plain functions over stretches of a row.
#pragma once

#include <cstdint>
#include <iterator>

#include "mxkern/core/dtype.h"
#include "mxkern/numerics/any_codec.h"
#include "mxkern/numerics/any_nearest.h"

namespace mxkern::cpu {

// The element types of plain tensors: all_dtypes, and float64 behind them.
inline constexpr int any_dtypes = static_cast<int>(std::size(all_dtypes)) + 1;
inline constexpr int float64_index = any_dtypes - 1;

// What elements are multiplied with, in float32 or float64 as they are computed in; null: nothing.
// `random` has a word for each element, or is null.
template <class Float>
struct AnyStretch {
  const void* x;
  std::int64_t count;
  const Float* multipliers;
  const std::uint16_t* random;
};

// How decoded elements become values.
template <class Float>
struct AnyValues {
  const Float* scales;  // one an element; null: values are the elements, and NaN stays NaN
  Float tensor_scale;
  bool has_tensor_scale;
};

// The sums of squared errors of one block of one row, by position modulo 16.
inline constexpr int error_parts = 16;
template <class Float>
struct AnyErrors {
  Float multiplier;        // of the unit in which errors are counted
  Float other_multiplier;  // of the scale that is looked at
  Float ratio;             // of the scale and the unit's
};

template <class Word>
struct AnyKernelsOf {
  using Float = typename MachineFloat<Word>::Float;
  // Raises amax[i] to the bits of the largest magnitude of block i of a row. `count` elements.
  using BlockAmax = void (*)(const void* x, std::int64_t count, std::int64_t block, Word* amax);
  using FiniteAmax = Word (*)(const void* x, std::int64_t count);
  // Codes of one byte, or of two.
  using Encode = void (*)(const AnyStretch<Float>& stretch, const AnyWay<Word>& way, bool is_wide,
                          void* codes);
  using Decode = void (*)(const void* codes, bool is_wide, std::int64_t count,
                          const AnyDecoder<Word>& decoder, const AnyValues<Float>& values,
                          void* out);
  using Round = void (*)(const AnyStretch<Float>& stretch, const AnyWay<Word>& way,
                         const AnyDecoder<Word>& decoder, const AnyValues<Float>& values,
                         void* out);
  using AddErrors = void (*)(const void* x, std::int64_t count, const AnyErrors<Float>& errors,
                             const AnyWay<Word>& way, const AnyDecoder<Word>& decoder,
                             Float* parts);
  BlockAmax block_amax;
  FiniteAmax finite_amax;
  Encode encode;
  Decode decode;
  Round round;
  AddErrors add_errors;
};

struct AnyKernels {
  AnyKernelsOf<std::uint32_t> of_dtype[std::size(all_dtypes)];
  AnyKernelsOf<std::uint64_t> of_float64;
  // Adds a[i] * b[i * stride + n] to sums[n] for i < k and n < count, a multiple of 16, and rounds
  // each sum.
  void (*accumulate)(const float* a, const float* b, std::int64_t k, std::int64_t stride,
                     std::int64_t count, const AnyWay<std::uint64_t>& way,
                     const AnyDecoder<std::uint64_t>& decoder, double* sums);
  // Adds products of `rows` rows of a, 4 at most, to rows of sums, in float32.
  void (*multiply)(const float* a, std::int64_t a_stride, int rows, const float* b, std::int64_t k,
                   std::int64_t stride, std::int64_t count, float* sums, std::int64_t sum_stride);
};

}  // namespace mxkern::cpu
