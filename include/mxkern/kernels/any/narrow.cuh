// mxkern/kernels/any/narrow.cuh: octets of elements to codes of at most 8 bits, or to the values of
// those, rounded to nearest. Compiled, never executed on a GPU.
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

// Tensors whose rows are whole octets that begin on 16 bytes, in blocks of whole octets; fewer than
// 2^31 of them. The rows of all matrices, and so of `any`, are the same distance apart.
struct NarrowParameters {
  AnyQuantizeParameters<std::uint32_t> any;
  NarrowEncoder element;
  NearestEncoder<std::uint32_t> scale;  // where is_nearest_scale
  bool is_nearest_scale;
  bool has_table;  // of scales: their codes are bytes, and one tensor scale, if any, is for all
  int bits, scale_bits;
  std::int64_t row_bytes;
  std::uint32_t octets;            // of all rows, up to the ends of their blocks
  std::uint32_t octets_there;      // of a row, that have elements
  NarrowExtent octets_of_row, rows;     // rows: of a matrix
  NarrowExtent octets_of_block;         // in a row
  NarrowExtent across, down;            // tiles of a matrix
  std::uint32_t tiles;
};

// What all blocks share: the tensor's scale, and in shared memory what each code of a scale stands
// for.
struct NarrowScales {
  float multipliers[256], values[256];

  __device__ __forceinline__ TensorScale fill(const NarrowParameters& p) {
    TensorScale tensor = {1.0f, 1.0f, 1.0f};
    if (p.any.scheme.tensor_scales != TensorScales::row) tensor = any_tensor(p.any, 0);
    if (p.has_table) {
      for (std::uint32_t code = threadIdx.x; code < 256; code += blockDim.x) {
        const AnyBlockScale scale = p.any.scaler.of_code(code, tensor);
        multipliers[code] = scale.multiplier;
        values[code] = scale.value;
      }
      __syncthreads();
    }
    return tensor;
  }

  // The scale of a block whose largest magnitude has these bits.
  __device__ __forceinline__ AnyBlockScale of(const NarrowParameters& p, std::uint32_t amax,
                                              const TensorScale& tensor) const {
    const AnyScaler& scaler = p.any.scaler;
    if (!p.has_table) return scaler.of_amax(amax, tensor);
    std::uint32_t code = scaler.format.nan_code();
    if (float32::is_finite(amax)) {
      code = p.is_nearest_scale ? encode_any<float>(p.scale, scaler.ratio(amax, tensor))
                                : scaler.code_of(amax, tensor);
    }
    return {code, multipliers[code], values[code]};
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

// Eight codes to an address that is aligned to what a power of two divides of `bits` bytes.
__device__ __forceinline__ void narrow_store(std::uint8_t* to, int bits, std::uint32_t low,
                                             std::uint32_t high) {
  low = narrow_packed(low, bits);
  high = narrow_packed(high, bits);
  switch (bits) {
    case 8: *reinterpret_cast<uint2*>(to) = make_uint2(low, high); return;
    case 4: *reinterpret_cast<std::uint32_t*>(to) = low | high << 16; return;
    case 6: {
      auto* const halves = reinterpret_cast<std::uint16_t*>(to);
      halves[0] = static_cast<std::uint16_t>(low);
      halves[1] = static_cast<std::uint16_t>(low >> 16 | high << 8);
      halves[2] = static_cast<std::uint16_t>(high >> 8);
      return;
    }
    case 2:
      *reinterpret_cast<std::uint16_t*>(to) = static_cast<std::uint16_t>(low | high << 8);
      return;
    default: *to = static_cast<std::uint8_t>(low | high << 4);
  }
}

// An octet of a row, and whether there are elements in it.
struct NarrowPlace {
  std::int64_t line;
  std::uint32_t of_row;
  bool has_elements;
};

template <class T>
__device__ __forceinline__ RawOctet<T> narrow_load(const NarrowParameters& p,
                                                   const NarrowPlace& at) {
  if (!at.has_elements) return {};
  return load_octet(static_cast<const T*>(p.any.x.data) + at.line * p.any.x.row_stride +
                    std::int64_t{at.of_row} * any_elements);
}

// Stores values, with one NaN; what is rare costs a sum an octet, which is NaN if a value is.
template <class T>
__device__ __forceinline__ void narrow_store_values(T* to, const float (&values)[8]) {
  const float sum = ((values[0] + values[1]) + (values[2] + values[3])) +
                    ((values[4] + values[5]) + (values[6] + values[7]));
  RawOctet<T> packed = pack<T>(values);
  if (sum != sum) {
    packed = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) set_element(packed, i, from_float<T>(with_one_nan(values[i])));
  }
  store_octet(to, packed);
}

// An octet whose scale is known: its codes, or its values, to memory.
template <class T, NarrowKind kind, bool fake>
__device__ __forceinline__ void narrow_finish(const NarrowParameters& p, const RawOctet<T>& raw,
                                              const NarrowPlace& at, const AnyBlockScale& scale,
                                              const TensorScale& tensor) {
  if (!at.has_elements && (fake || p.bits == 8)) return;
  float x[8];
  unpack(raw, x);
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = x[i] * scale.multiplier;
  // NaN, infinite or negative: of poisoned blocks, and of tensor scales that nobody would give.
  const bool is_odd = bits_of(scale.multiplier) >= float32::infinity_bits;
  if constexpr (fake) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float rounded = is_odd ? round_any<float>(p.any.way.nearest, x[i])
                                   : narrow_rounded<kind>(p.element, x[i]);
      x[i] = rounded * scale.value * tensor.stored;
    }
    narrow_store_values(static_cast<T*>(p.any.values.data) + at.line * p.any.values.row_stride +
                            std::int64_t{at.of_row} * any_elements,
                        x);
  } else {
    std::uint32_t low, high;
    if (is_odd) {
      low = high = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        low |= encode_any<float>(p.any.way.nearest, x[i]) << (8 * i);
        high |= encode_any<float>(p.any.way.nearest, x[i + 4]) << (8 * i);
      }
      if (!at.has_elements) low = high = 0;
    } else {
      low = narrow_codes<kind>(p.element, x, narrow_signs(raw, 0));
      high = narrow_codes<kind>(p.element, x + 4, narrow_signs(raw, 1));
    }
    narrow_store(p.any.codes + at.line * p.row_bytes + std::int64_t{at.of_row} * p.bits, p.bits,
                 low, high);
  }
}

// Where the scale of a block lies; `row` and `block` as ScaleIndex counts them.
__device__ __forceinline__ void narrow_store_scale(const NarrowParameters& p, std::int64_t batch,
                                                   std::int64_t row, std::int64_t block,
                                                   std::uint32_t code) {
  const ScaleIndex index = p.any.scheme.scale_index(p.any.shape, p.any.layout);
  any_store_scale(p.any.scales, p.scale_bits, batch * index.size() + index.offset(row, block),
                  code);
}

}  // namespace mxkern::kernels
