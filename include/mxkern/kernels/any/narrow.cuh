// mxkern/kernels/any/narrow.cuh: octets of elements to codes of at most 8 bits, or to the values of
// those, rounded to nearest.
#pragma once

#include <cstdint>

#include "mxkern/core/divisor.h"
#include "mxkern/kernels/any/elements.cuh"
#include "mxkern/kernels/device/vector_io.cuh"
#include "mxkern/numerics/any_narrow.h"

namespace mxkern::kernels {

inline constexpr int narrow_threads = 256;

// A number to divide by.
struct NarrowExtent {
  std::uint32_t size;
  Divisor by;

  NarrowExtent() = default;
  explicit NarrowExtent(std::int64_t extent)
      : size(static_cast<std::uint32_t>(extent)), by(static_cast<int>(extent)) {}

  __device__ __forceinline__ std::uint32_t quotient(std::uint32_t number) const {
    return static_cast<std::uint32_t>(by.quotient(static_cast<int>(number)));
  }
};

// Tensors whose rows are whole parts, of one or two octets, which begin on 16 bytes, in blocks of
// whole parts; fewer than 2^30 of them, and distances that 32 bits hold. The rows of all matrices
// are the same distance apart.
struct NarrowParameters {
  AnyQuantizeParameters<std::uint32_t> any;
  NarrowEncoder element;
  NearestEncoder<std::uint32_t> scale;  // where is_nearest_scale
  bool is_nearest_scale, is_power_scale;
  bool has_table;  // of scales: their codes are bytes, and one tensor scale, if any, is for all
  std::int32_t power_bias, most_power;  // from a rule's byte to a code, and the largest one
  std::uint32_t nan_scale;
  bool beside;  // lanes 2 i and 2 i + 1 have parts that lie side by side, or neither has one
  int bits, scale_bits;
  std::uint32_t parts, tiles;                         // parts: up to the ends of blocks
  std::uint32_t parts_there;                          // of a row, that have elements
  std::uint32_t x_stride, value_stride, code_stride;  // of rows, in parts
  NarrowExtent parts_of_row, parts_of_block, rows;    // rows: of a matrix
  NarrowExtent across, down;                          // tiles of a matrix
  ScaleIndex scale_index;
  std::int64_t scales_of_matrix;
};

// A block's scale: AnyBlockScale's fields, and the tensor's that values are multiplied with.
struct NarrowScale {
  std::uint32_t code;
  float multiplier, value, tensor;
};

// The table of a scale format: for each of its codes the factor of elements, and the value.
struct NarrowScales {
  float multipliers[256], values[256];

  // Returns the tensor's scale, and stores it; of rows each has its own.
  __device__ __forceinline__ TensorScale fill(const NarrowParameters& p) {
    if (p.any.scheme.tensor_scales == TensorScales::row) return {1.0f, 1.0f, 1.0f};
    const TensorScale tensor = any_tensor(p.any, 0);
    if (p.any.tensor_scale != nullptr && p.any.scheme.has_tensor_scale() && blockIdx.x == 0 &&
        threadIdx.x == 0) {
      *p.any.tensor_scale = tensor.stored;
    }
    if (p.has_table) {
      const AnyBlockScale scale = p.any.scaler.of_code(threadIdx.x, tensor);
      multipliers[threadIdx.x] = scale.multiplier;
      values[threadIdx.x] = scale.value;
      __syncthreads();
    }
    return tensor;
  }

  // The scale of a block whose largest magnitude has these bits, in a row that has to be there.
  // is_first: whether the thread is the one that stores the row's.
  __device__ __forceinline__ NarrowScale of(const NarrowParameters& p, std::uint32_t amax,
                                            const TensorScale& whole, std::int64_t line,
                                            bool is_first) const {
    const AnyScaler& scaler = p.any.scaler;
    if (!p.has_table) {
      const TensorScale tensor = any_tensor(p.any, line);
      if (p.any.scheme.tensor_scales == TensorScales::row && is_first &&
          p.any.tensor_scale != nullptr) {
        p.any.tensor_scale[line] = tensor.stored;
      }
      const AnyBlockScale scale = scaler.of_amax(amax, tensor);
      return {scale.code, scale.multiplier, scale.value, tensor.stored};
    }
    std::uint32_t code;
    if (p.is_power_scale) {
      const int power = static_cast<int>(scaler.rule.bytes(amax)) + p.power_bias;
      code = static_cast<std::uint32_t>(min(max(power, 0), p.most_power));
    } else {
      const float ratio = scaler.ratio(amax, whole);
      code = p.is_nearest_scale ? encode_any<float>(p.scale, ratio)
                                : encode_any<float>(scaler.encoder, ratio, 0u);
    }
    if (amax >= float32::infinity_bits) code = p.nan_scale;
    return {code, multipliers[code], values[code], whole.stored};
  }
};

// The largest magnitude of an octet, as bits of a float32; of what is not finite those are beyond
// all numbers.
template <class T>
__device__ __forceinline__ std::uint32_t narrow_amax(const RawOctet<T>& raw) {
  if constexpr (sizeof(T) == 4) {
    std::uint32_t amax = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) amax = higher_of(amax, raw.word[i] & float32::magnitude_mask);
    return amax;
  } else {
    constexpr std::uint32_t magnitudes = 0x7FFF7FFFu;
    const std::uint32_t pair =
        __vmaxu2(__vmaxu2(raw.word[0] & magnitudes, raw.word[1] & magnitudes),
                 __vmaxu2(raw.word[2] & magnitudes, raw.word[3] & magnitudes));
    const std::uint32_t amax = higher_of(pair >> 16, pair & 0xFFFFu);
    if constexpr (dtype_of<T>::value == DType::bfloat16) return amax << 16;
    return bits_of(unpack_pair<T>(amax).x);
  }
}

// The highest byte of each of four elements.
template <class T>
__device__ __forceinline__ std::uint32_t narrow_signs(const RawOctet<T>& raw, int half) {
  if constexpr (sizeof(T) == 4) {
    const std::uint32_t* words = raw.word + 4 * half;
    return __byte_perm(__byte_perm(words[0], words[1], 0x0073),
                       __byte_perm(words[2], words[3], 0x7300), 0x7610);
  } else {
    return __byte_perm(raw.word[2 * half], raw.word[2 * half + 1], 0x7531);
  }
}

// A part of a row: the adjacent octets of elements that one thread has, 16 or 32 bytes of them.
template <class T, int octets>
struct NarrowPart {
  static constexpr int words = octets * RawOctet<T>::words;
  RawOctet<T> octet[octets];
};

// A part of a row, and whether there are elements in it. What is not there has line 0.
struct NarrowPlace {
  std::uint32_t line, of_row;
  bool is_there, has_elements;
};

template <class T, int octets>
__device__ __forceinline__ NarrowPart<T, octets> narrow_load(const NarrowParameters& p,
                                                             const NarrowPlace& at) {
  NarrowPart<T, octets> part = {};
  if (!at.has_elements) return part;
  const T* const from = static_cast<const T*>(p.any.x.data) +
                        std::uint64_t{at.line * p.x_stride + at.of_row} * (8 * octets);
#pragma unroll
  for (int i = 0; i < octets; ++i) part.octet[i] = load_octet(from + 8 * i);
  return part;
}

template <class T, int octets>
__device__ __forceinline__ std::uint32_t narrow_amax(const NarrowPart<T, octets>& part) {
  std::uint32_t amax = narrow_amax(part.octet[0]);
  if constexpr (octets == 2) amax = higher_of(amax, narrow_amax(part.octet[1]));
  return amax;
}

// Values to elements, with one NaN; what is rare costs a sum an octet, which is NaN if a value is.
template <class T>
__device__ __forceinline__ RawOctet<T> narrow_elements(const float (&values)[8]) {
  const float sum = ((values[0] + values[1]) + (values[2] + values[3])) +
                    ((values[4] + values[5]) + (values[6] + values[7]));
  if (sum == sum) return pack<T>(values);
  RawOctet<T> packed = {};
#pragma unroll
  for (int i = 0; i < 8; ++i) set_element(packed, i, from_float<T>(with_one_nan(values[i])));
  return packed;
}

// Stores a part; all lanes of a warp call it. Parts of 32 bytes, side by side, are stored as octets
// of float32 are.
template <class T, int octets>
__device__ __forceinline__ void narrow_store_part(T* to, const NarrowPart<T, octets>& part,
                                                  bool exists, bool beside) {
  if constexpr (NarrowPart<T, octets>::words == 8) {
    if (beside) {
      RawOctet<float> words;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        words.word[i] = part.octet[i / RawOctet<T>::words].word[i % RawOctet<T>::words];
      }
      return store_octet_beside(reinterpret_cast<float*>(to), words, exists);
    }
  }
  if (!exists) return;
#pragma unroll
  for (int i = 0; i < octets; ++i) store_octet(to + 8 * i, part.octet[i]);
}

// The words of an octet of codes, a byte each, to the lowest bits of one of 64.
__device__ __forceinline__ Octet narrow_octet(uint2 bytes, int bits) {
  return narrow_packed(bytes.x, bits) | Octet{narrow_packed(bytes.y, bits)} << (4 * bits);
}

// The codes of a part, a byte each, to memory where `bits` bytes an octet are to lie.
__device__ __forceinline__ void narrow_store_codes(std::uint8_t* to, int bits,
                                                   const uint2 (&bytes)[1]) {
  if (bits == 8) {
    *reinterpret_cast<uint2*>(to) = bytes[0];
    return;
  }
  const Octet codes = narrow_octet(bytes[0], bits);
  if (bits == 4) {
    *reinterpret_cast<std::uint32_t*>(to) = static_cast<std::uint32_t>(codes);
  } else if (bits == 1) {
    *to = static_cast<std::uint8_t>(codes);
  } else {
    auto* const halves = reinterpret_cast<std::uint16_t*>(to);
    for (int i = 0; i < bits / 2; ++i) halves[i] = static_cast<std::uint16_t>(codes >> (16 * i));
  }
}
__device__ __forceinline__ void narrow_store_codes(std::uint8_t* to, int bits,
                                                   const uint2 (&bytes)[2]) {
  if (bits == 8) {
    *reinterpret_cast<uint4*>(to) = make_uint4(bytes[0].x, bytes[0].y, bytes[1].x, bytes[1].y);
    return;
  }
  const Octet first = narrow_octet(bytes[0], bits), second = narrow_octet(bytes[1], bits);
  auto* const words = reinterpret_cast<std::uint32_t*>(to);
  if (bits == 4) {
    *reinterpret_cast<uint2*>(to) =
        make_uint2(static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(second));
  } else if (bits == 6) {
    words[0] = static_cast<std::uint32_t>(first);
    words[1] = static_cast<std::uint32_t>(first >> 32 | second << 16);
    words[2] = static_cast<std::uint32_t>(second >> 16);
  } else if (bits == 2) {
    words[0] = static_cast<std::uint32_t>(first | second << 16);
  } else {
    *reinterpret_cast<std::uint16_t*>(to) = static_cast<std::uint16_t>(first | second << 8);
  }
}

// A part whose scale is known: its codes, or its values, to memory. All lanes of a warp call it.
template <class T, NarrowKind kind, bool fake, int octets>
__device__ __forceinline__ void narrow_finish(const NarrowParameters& p,
                                              const NarrowPart<T, octets>& part,
                                              const NarrowPlace& at, const NarrowScale& scale) {
  // NaN, infinite or negative: of poisoned blocks, and of tensor scales that nobody would give.
  const bool is_odd = bits_of(scale.multiplier) >= float32::infinity_bits;
  [[maybe_unused]] NarrowPart<T, octets> values;
  [[maybe_unused]] uint2 codes[octets];
#pragma unroll
  for (int o = 0; o < octets; ++o) {
    float x[8];
    unpack(part.octet[o], x);
#pragma unroll
    for (int i = 0; i < 8; ++i) x[i] = x[i] * scale.multiplier;
    if constexpr (fake) {
      if (is_odd) {
#pragma unroll
        for (int i = 0; i < 8; ++i) x[i] = round_any<float>(p.any.way.nearest, x[i]);
      } else {
#pragma unroll
        for (int i = 0; i < 8; ++i) x[i] = narrow_rounded<kind>(p.element, x[i]);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) x[i] = x[i] * scale.value * scale.tensor;
      values.octet[o] = narrow_elements<T>(x);
    } else if (is_odd) {
      codes[o] = {};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        codes[o].x |= encode_any<float>(p.any.way.nearest, x[i]) << (8 * i);
        codes[o].y |= encode_any<float>(p.any.way.nearest, x[i + 4]) << (8 * i);
      }
      if (!at.has_elements) codes[o] = {};
    } else {
      codes[o].x = narrow_codes<kind>(p.element, x, narrow_signs(part.octet[o], 0));
      codes[o].y = narrow_codes<kind>(p.element, x + 4, narrow_signs(part.octet[o], 1));
    }
  }
  if constexpr (fake) {
    narrow_store_part(static_cast<T*>(p.any.values.data) +
                          std::uint64_t{at.line * p.value_stride + at.of_row} * (8 * octets),
                      values, at.has_elements, p.beside);
  } else if (at.has_elements || (at.is_there && p.bits < 8)) {
    narrow_store_codes(p.any.codes + std::uint64_t{at.line * p.code_stride + at.of_row} *
                                         static_cast<std::uint32_t>(p.bits * octets),
                       p.bits, codes);
  }
}

// `row` and `block` as ScaleIndex counts them.
__device__ __forceinline__ void narrow_store_scale(const NarrowParameters& p, std::uint32_t batch,
                                                   std::uint32_t row, std::uint32_t block,
                                                   std::uint32_t code) {
  any_store_scale(p.any.scales, p.scale_bits,
                  batch * p.scales_of_matrix + p.scale_index.offset(row, block), code);
}

}  // namespace mxkern::kernels
