// mxkern/kernels/any/elements.cuh: elements and scales of any type, and eight codes at a time.
#pragma once

#include <cstdint>

#include "mxkern/core/dtype.h"
#include "mxkern/core/philox.h"
#include "mxkern/kernels/any/parameters.h"

namespace mxkern::kernels {

// How elements of a type are computed with.
template <class T>
struct AnyComputed {
  using Word = std::uint32_t;
};
template <>
struct AnyComputed<double> {
  using Word = std::uint64_t;
};
template <class T>
using AnyWordOf = typename AnyComputed<T>::Word;
template <class T>
using AnyFloatOf = typename MachineFloat<AnyWordOf<T>>::Float;

template <class T>
__device__ __forceinline__ AnyFloatOf<T> any_load(const T& element) {
  if constexpr (std::is_same_v<T, double>) {
    return element;
  } else {
    return to_float(element);
  }
}

template <class T>
__device__ __forceinline__ T any_stored(AnyFloatOf<T> value) {
  if constexpr (std::is_same_v<T, double>) {
    return value == value ? value : __longlong_as_double(0x7FF8000000000000ll);
  } else {
    return from_float<T>(with_one_nan(value));
  }
}

template <class T>
__device__ __forceinline__ T* any_at(const AnyView& view, std::int64_t batch, std::int64_t row,
                                     std::int64_t column) {
  return static_cast<T*>(view.data) + batch * view.batch_stride + row * view.row_stride + column;
}

__device__ __forceinline__ std::uint32_t any_load_scale(const void* scales, int bits,
                                                        std::int64_t i) {
  if (bits == 8) return static_cast<const std::uint8_t*>(scales)[i];
  if (bits == 16) return static_cast<const std::uint16_t*>(scales)[i];
  return static_cast<const std::uint32_t*>(scales)[i];
}

__device__ __forceinline__ void any_store_scale(void* scales, int bits, std::int64_t i,
                                                std::uint32_t code) {
  if (bits == 8) {
    static_cast<std::uint8_t*>(scales)[i] = static_cast<std::uint8_t>(code);
  } else if (bits == 16) {
    static_cast<std::uint16_t*>(scales)[i] = static_cast<std::uint16_t>(code);
  } else {
    static_cast<std::uint32_t*>(scales)[i] = code;
  }
}

// The elements of a thread: eight of a row, of which `count` are there, from a column on that is a
// multiple of eight.
inline constexpr int any_elements = 8;

template <class T>
__device__ __forceinline__ void any_load_eight(const T* source, int count, bool on_16,
                                               AnyFloatOf<T> (&x)[any_elements]) {
  if (on_16 && count == any_elements) {
    union {
      uint4 words[sizeof(T) / 2];
      T elements[any_elements];
    } read;
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(T) / 2); ++i) {
      read.words[i] = reinterpret_cast<const uint4*>(source)[i];
    }
#pragma unroll
    for (int i = 0; i < any_elements; ++i) x[i] = any_load(read.elements[i]);
    return;
  }
#pragma unroll
  for (int i = 0; i < any_elements; ++i) {
    x[i] = i < count ? any_load(source[i]) : AnyFloatOf<T>{0};
  }
}

template <class T>
__device__ __forceinline__ void any_store_eight(T* target, int count, bool on_16,
                                                const AnyFloatOf<T> (&x)[any_elements]) {
  if (on_16 && count == any_elements) {
    union {
      uint4 words[sizeof(T) / 2];
      T elements[any_elements];
    } written;
#pragma unroll
    for (int i = 0; i < any_elements; ++i) written.elements[i] = any_stored<T>(x[i]);
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(T) / 2); ++i) {
      reinterpret_cast<uint4*>(target)[i] = written.words[i];
    }
    return;
  }
  for (int i = 0; i < count; ++i) target[i] = any_stored<T>(x[i]);
}

// The code and the value of an element that is multiplied already.
template <class Word>
__device__ __forceinline__ Word any_code(const AnyWay<Word>& way,
                                         typename MachineFloat<Word>::Float x, Word random) {
  using Float = typename MachineFloat<Word>::Float;
  return way.is_nearest ? encode_any<Float>(way.nearest, x)
                        : encode_any<Float>(way.encoder, x, random);
}

template <class Word>
__device__ __forceinline__ typename MachineFloat<Word>::Float any_rounded(
    const AnyWay<Word>& way, const AnyDecoder<Word>& decoder, typename MachineFloat<Word>::Float x,
    Word random) {
  using Float = typename MachineFloat<Word>::Float;
  return way.is_nearest ? round_any<Float>(way.nearest, x)
                        : decode_any<Word>(decoder, encode_any<Float>(way.encoder, x, random));
}

// Eight codes to memory: `bits` bytes, of which those of `count` codes where they are not packed.
__device__ __forceinline__ void any_store_codes(std::uint8_t* target, int bits,
                                                const std::uint32_t (&codes)[any_elements],
                                                int count, bool on_word) {
  if (bits == 16) {
    for (int i = 0; i < count; ++i) {
      reinterpret_cast<std::uint16_t*>(target)[i] = static_cast<std::uint16_t>(codes[i]);
    }
    return;
  }
  std::uint64_t word = 0;
#pragma unroll
  for (int i = 0; i < any_elements; ++i) word |= std::uint64_t{codes[i]} << (bits * i);
  if (on_word && (bits < 8 || count == any_elements)) {
    if (bits == 8) {
      *reinterpret_cast<std::uint64_t*>(target) = word;
      return;
    }
    if (bits == 4) {
      *reinterpret_cast<std::uint32_t*>(target) = static_cast<std::uint32_t>(word);
      return;
    }
  }
  const int bytes = bits == 8 ? count : bits;
  for (int i = 0; i < bytes; ++i) target[i] = static_cast<std::uint8_t>(word >> (8 * i));
}

// The word of an element of a tensor.
template <class Word>
__device__ __forceinline__ std::uint32_t any_random(const AnyQuantizeParameters<Word>& p,
                                                    std::int64_t batch, std::int64_t row,
                                                    std::int64_t column) {
  const std::int64_t index = p.words_are_transposed
                                 ? (batch * p.shape.columns + column) * p.shape.rows + row
                                 : (batch * p.shape.rows + row) * p.shape.columns + column;
  return philox_word(p.seed, p.offset, static_cast<std::uint64_t>(index));
}

// The tensor scale that a row has.
template <class Word>
__device__ __forceinline__ TensorScale any_tensor(const AnyQuantizeParameters<Word>& p,
                                                  std::int64_t line) {
  if (!p.scheme.has_tensor_scale()) return {1.0f, 1.0f, 1.0f};
  const std::int64_t i = p.scheme.tensor_scales == TensorScales::row ? line : 0;
  if (p.given_tensor_scale != nullptr) {
    return TensorScale::from_decode_multiplier(p.given_tensor_scale[i]);
  }
  return any_tensor_scale(p.scheme.largest(), p.amax[i]);
}

// The scale of block i, in row-major order, whose largest magnitude has the bits `own`.
template <class Word>
__device__ __forceinline__ AnyBlockScale any_scale(const AnyQuantizeParameters<Word>& p, Word own,
                                                   const TensorScale& tensor, std::int64_t i) {
  const std::uint32_t amax = any_amax(own, p.scheme.scale.kind, p.scale_options.rule);
  if (!float32::is_finite(amax)) return p.scaler.poisoned();
  if (p.given_scales != nullptr) {
    return p.scaler.of_code(any_load_scale(p.given_scales, p.scheme.scale.stored_bits(), i),
                            tensor);
  }
  if (p.block_amaxes != nullptr) {
    return p.scaler.of_amax(bits_of(p.block_amaxes[i]) & float32::magnitude_mask, tensor);
  }
  return p.scaler.of_amax(amax, tensor);
}

}  // namespace mxkern::kernels
