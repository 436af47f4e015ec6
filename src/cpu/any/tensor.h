// cpu/any/tensor.h: addresses in tensors whose types are known at run time, and codes in bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "cpu/any/kernels.h"
#include "mxkern/custom.h"
#include "mxkern/tensor/packing.h"

namespace mxkern::cpu {

// Elements that are looked at together: their multipliers, scales and codes lie in a thread's
// memory. Codes of as many fill whole bytes.
inline constexpr std::int64_t any_chunk = 1024;

inline std::int64_t element_size(const AnyBuffer& x) {
  return x.is_float64 ? 8 : static_cast<std::int64_t>(size_of(x.dtype));
}

inline std::byte* any_address(const AnyBuffer& x, std::int64_t batch, std::int64_t row,
                              std::int64_t column) {
  const std::int64_t index = batch * x.batch_stride + row * x.row_stride + column;
  return static_cast<std::byte*>(x.data) + index * element_size(x);
}

// Calls visitor with the kernels of x's type.
template <class Visitor>
decltype(auto) visit_any(const AnyBuffer& x, const AnyKernels& kernels, Visitor&& visitor) {
  if (x.is_float64) return visitor(kernels.of_float64);
  return visitor(kernels.of_dtype[static_cast<int>(x.dtype)]);
}

// Where scales lie, in a type of 1, 2 or 4 bytes.
struct AnyScales {
  std::byte* data;
  int bytes;  // of one

  std::uint32_t load(std::int64_t i) const {
    std::uint32_t code = 0;
    if (bytes == 1) {
      code = static_cast<std::uint32_t>(data[i]);
    } else if (bytes == 2) {
      std::uint16_t half;
      std::memcpy(&half, data + 2 * i, 2);
      code = half;
    } else {
      std::memcpy(&code, data + 4 * i, 4);
    }
    return code;
  }
  void store(std::int64_t i, std::uint32_t code) const {
    if (bytes == 1) {
      data[i] = static_cast<std::byte>(code);
    } else if (bytes == 2) {
      const auto half = static_cast<std::uint16_t>(code);
      std::memcpy(data + 2 * i, &half, 2);
    } else {
      std::memcpy(data + 4 * i, &code, 4);
    }
  }
};

// Packs `count` codes of 1, 2, 4 or 6 bits, one a byte; what fills the last byte is 0.
inline void pack_any(int bits, std::uint8_t* codes, std::int64_t count, std::uint8_t* bytes) {
  const int group = bits == 6 ? 4 : 8 / bits;
  const std::int64_t whole = count / group * group;
  if (bits == 4) {
    for (std::int64_t i = 0; i < whole / 2; ++i) {
      bytes[i] = static_cast<std::uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
    }
  } else if (bits == 6) {
    for (std::int64_t i = 0; i < whole / 4; ++i) pack_group<6>(codes + 4 * i, bytes + 3 * i);
  } else {
    for (std::int64_t i = 0; i < whole / group; ++i) {
      unsigned byte = 0;
      for (int j = 0; j < group; ++j) byte |= unsigned{codes[i * group + j]} << (j * bits);
      bytes[i] = static_cast<std::uint8_t>(byte);
    }
  }
  if (whole == count) return;
  std::uint32_t word = 0;
  for (std::int64_t i = whole; i < count; ++i) {
    word |= std::uint32_t{codes[i]} << (bits * static_cast<int>(i - whole));
  }
  const std::int64_t used = ceil_div((count - whole) * bits, 8);
  for (std::int64_t i = 0; i < used; ++i) {
    bytes[whole * bits / 8 + i] = static_cast<std::uint8_t>(word >> (8 * i));
  }
}

inline void unpack_any(int bits, const std::uint8_t* bytes, std::int64_t count,
                       std::uint8_t* codes) {
  const unsigned mask = (1u << bits) - 1u;
  if (bits == 6) {
    std::int64_t i = 0;
    for (; i + 4 <= count; i += 4) unpack_group<6>(bytes + i / 4 * 3, codes + i);
    for (; i < count; ++i) {
      const std::int64_t at = i * 6 / 8;
      const int shift = static_cast<int>(i * 6 % 8);
      unsigned word = bytes[at];
      if (shift > 2) word |= unsigned{bytes[at + 1]} << 8;
      codes[i] = static_cast<std::uint8_t>(word >> shift & mask);
    }
    return;
  }
  std::int64_t i = 0;
  if (bits == 4) {
    for (; i + 2 <= count; i += 2) {
      codes[i] = bytes[i / 2] & 15u;
      codes[i + 1] = static_cast<std::uint8_t>(bytes[i / 2] >> 4);
    }
  }
  const int group = 8 / bits;
  for (; i < count; ++i) {
    codes[i] = static_cast<std::uint8_t>(bytes[i / group] >> (i % group * bits) & mask);
  }
}

}  // namespace mxkern::cpu
