// cpu/gemm/exact_sum.cc: sums of products in double precision, and when a unit's are not enough.
#include "cpu/gemm/exact_sum.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu/gemm/scale_row.h"
#include "mxkern/core/math.h"
#include "mxkern/numerics/scale_format.h"
#include "mxkern/numerics/visit.h"

namespace mxkern::cpu {
namespace {

// What a unit leaves of a row: elements below 2^largest, and some below 2^lost as zeros.
struct Reach {
  int largest;
  bool loses;
};
constexpr int lost = -84;

Reach reach_of(const GemmMatrix& matrix) {
  if (matrix.is_plain) {
    return matrix.dtype == DType::float16 ? Reach{16, false} : Reach{28, true};
  }
  return visit(matrix.scheme, [](auto scheme) -> Reach {
    using S = decltype(scheme);
    if constexpr (S::ScaleFormat::is_power_of_two) {
      return {28, true};
    } else {
      return {S::Format::max_exponent + S::ScaleFormat::Element::max_exponent + 2, false};
    }
  });
}

// `count` codes from `k` on, as numbers before their scales.
template <class Format>
void decode_elements(const std::uint8_t* row, std::int64_t k, int count, double* values) {
  for (int i = 0; i < count; ++i) {
    const std::int64_t bit = (k + i) * Format::bits;
    const std::uint8_t* byte = row + bit / 8;
    const int shift = static_cast<int>(bit % 8);
    std::uint32_t code = static_cast<std::uint32_t>(byte[0]) >> shift;
    if (shift + Format::bits > 8) code |= static_cast<std::uint32_t>(byte[1]) << (8 - shift);
    code &= (1u << Format::bits) - 1;
    values[i] = static_cast<double>(decode<Format>(static_cast<std::uint8_t>(code)));
  }
}

// The same for a plain row.
template <class T>
void load_elements(const T* elements, int count, double* values) {
  for (int i = 0; i < count; ++i) values[i] = static_cast<double>(to_float(elements[i]));
}

// The elements of a chunk, scaled.
void load_chunk(const GemmMatrix& matrix, std::int64_t row, std::int64_t k, int count,
                double* values) {
  const std::uint8_t* data = matrix.data + row * matrix.row_bytes;
  if (matrix.is_plain) {
    visit(matrix.dtype, [&]<class T>(TypeTag<T>) {
      load_elements(reinterpret_cast<const T*>(data) + k, count, values);
    });
    return;
  }
  visit(matrix.scheme, [&]<class S>(S) {
    decode_elements<typename S::Format>(data, k, count, values);
    const ScaleRow scales(matrix, row);
    for (int i = 0; i < count; ++i) {
      values[i] *= static_cast<double>(S::ScaleFormat::decode(scales.byte((k + i) / S::block)));
    }
  });
}

template <class T>
std::int32_t plain_row_spread(const T* elements, std::int64_t count) {
  // Of magnitudes that are finite and not zero; and of all.
  std::uint32_t largest = 0, smallest = float32::infinity_bits, any = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t bits = bits_of(to_float(elements[i])) & float32::magnitude_mask;
    any = std::max(any, bits);
    largest = std::max(largest, bits < float32::infinity_bits ? bits : 0u);
    smallest = std::min(smallest, bits == 0 ? float32::infinity_bits : bits);
  }
  if (any > float32::infinity_bits) return settled_row;
  if (largest == 0) return any == 0 ? settled_row : 0;
  return std::ilogb(float_of(largest)) - std::ilogb(float_of(smallest));
}

// Whether bytes of a block are not zero: as good as whether elements are, but for negative zeros.
template <class S>
bool has_bytes(const std::uint8_t* block) {
  std::uint64_t words[S::block_bytes / 8], any = 0;
  std::memcpy(words, block, sizeof(words));
  for (const std::uint64_t word : words) any |= word;
  return any != 0;
}

template <class S>
bool is_zero(const std::uint8_t* row, std::int64_t block, std::int64_t k) {
  const std::int64_t first = block * S::block;
  double values[S::block];
  const int count = static_cast<int>(std::min<std::int64_t>(S::block, k - first));
  decode_elements<typename S::Format>(row, first, count, values);
  return std::all_of(values, values + count, [](double value) { return value == 0.0; });
}

template <class S>
std::int32_t scaled_row_spread(const GemmMatrix& matrix, std::int64_t row) {
  const std::uint8_t* data = matrix.data + row * matrix.row_bytes;
  const ScaleRow scales(matrix, row);
  const std::int64_t blocks = matrix.scale_index.blocks, whole_blocks = matrix.k / S::block;
  // Zeros come in no order that a processor could guess: there are no branches on them here.
  int largest = 0, smallest = S::ScaleFormat::nan_byte;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const int byte = scales.byte(block);
    largest = std::max(largest, byte);
    const bool counts = block >= whole_blocks || has_bytes<S>(data + block * S::block_bytes);
    smallest = std::min<int>(smallest, counts ? byte : S::ScaleFormat::nan_byte);
  }
  if (largest == S::ScaleFormat::nan_byte) return settled_row;
  // Codes are looked at where they would change something.
  if (may_lose_products(largest - smallest, largest - smallest)) {
    smallest = S::ScaleFormat::nan_byte;
    for (std::int64_t block = 0; block < blocks; ++block) {
      const int byte = scales.byte(block);
      if (byte < smallest && !is_zero<S>(data, block, matrix.k)) smallest = byte;
    }
  }
  return smallest > largest ? settled_row : largest - smallest;
}

}  // namespace

float least_certain_sum(const GemmMatrix& left, const GemmMatrix& right) {
  const Reach a = reach_of(left), b = reach_of(right);
  if (!a.loses && !b.loses) return 0.0f;
  const int largest_lost = lost + std::max(a.loses ? b.largest : 0, b.loses ? a.largest : 0);
  // 2^-24 of the sum is what float32 loses anyway.
  return static_cast<float>(std::ldexp(static_cast<double>(left.k), largest_lost + 24));
}

std::int32_t row_spread(const GemmMatrix& matrix, std::int64_t row) {
  if (matrix.is_plain) {
    return visit(matrix.dtype, [&]<class T>(TypeTag<T>) {
      return plain_row_spread(reinterpret_cast<const T*>(matrix.data + row * matrix.row_bytes),
                              matrix.k);
    });
  }
  return visit(matrix.scheme, [&](auto scheme) -> std::int32_t {
    using S = decltype(scheme);
    if constexpr (S::ScaleFormat::is_power_of_two) {
      return scaled_row_spread<S>(matrix, row);
    } else {
      return 0;
    }
  });
}

double exact_sum(const GemmMatrix& left, std::int64_t row, const GemmMatrix& right,
                 std::int64_t column) {
  double sum = 0.0;
  double a[gemm_chunk], b[gemm_chunk];
  for (std::int64_t k = 0; k < left.k; k += gemm_chunk) {
    const int count = static_cast<int>(std::min<std::int64_t>(gemm_chunk, left.k - k));
    load_chunk(left, row, k, count, a);
    load_chunk(right, column, k, count, b);
    for (int i = 0; i < count; ++i) sum += a[i] * b[i];
  }
  return sum;
}

}  // namespace mxkern::cpu
