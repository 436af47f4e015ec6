// mxkern/kernels/any/parameters.h: what kernels of schemes that are known at run time take.
#pragma once

#include <cstdint>

#include "mxkern/numerics/any_codec.h"
#include "mxkern/numerics/any_nearest.h"
#include "mxkern/numerics/any_scale.h"
#include "mxkern/tensor/any_scheme.h"

namespace mxkern::kernels {

// A plain tensor.
struct AnyView {
  void* data;
  std::int64_t row_stride, batch_stride;
};

template <class Word>
struct AnyQuantizeParameters {
  using Float = typename MachineFloat<Word>::Float;

  AnyView x, values;    // values: of fake quantization, else without data
  std::uint8_t* codes;  // null: of fake quantization
  void* scales;         // null: not stored
  float* tensor_scale;  // where it is left; null: nowhere
  Shape shape;
  AnyScheme scheme;
  ScaleLayout layout;
  AnyScaler scaler;
  AnyWay<Word> way, chooser;  // chooser: of errors
  AnyDecoder<Word> decoder;
  AnyScaleOptions scale_options;
  bool square, is_stochastic, words_are_transposed;
  std::uint64_t seed, offset;
  const void* given_scales;
  const float* block_amaxes;
  const float* amax;  // given, or found before; null: a tensor scale is given, or none
  const float* given_tensor_scale;
  const float* whole_amax;  // of a whole tensor: the float32 that its scale follows from
  bool x_on_16, values_on_16, codes_on_word;
  std::int64_t group, block;  // rows and columns that share a scale
};

template <class Word>
struct AnyDecodeParameters {
  const std::uint8_t* codes;
  const void* scales;
  const float* tensor_scale;
  AnyView out;
  Shape shape;
  AnyScheme scheme;
  ScaleLayout layout;
  AnyDecoder<Word> decoder;
  std::int64_t block;
};

template <class Word>
struct AnyRoundParameters {
  AnyView x, out;
  Shape shape;
  AnyWay<Word> way;
  AnyDecoder<Word> decoder;
  bool is_stochastic;
  std::uint64_t seed, offset;
};

// The kernel that finds the largest magnitude of a tensor, or of each row, is told this.
struct AnyAmaxParameters {
  AnyView x;
  Shape shape;
  AnyScaleKind kind;
  ScaleRule rule;
  bool of_rows;  // one each
  bool finite;   // of what is finite, to the nearest float32; else as the rule wants it
  float* found;  // zeros before, where it is one
};

}  // namespace mxkern::kernels
