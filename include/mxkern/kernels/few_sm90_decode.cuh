// mxkern/kernels/few_sm90_decode.cuh: scales of decoded weights, a row or two at a time.
#pragma once

#include <cstdint>

#include "mxkern/kernels/few_decode.cuh"

namespace mxkern::kernels::few {

// Multipliers of decoded weights, of two rows; `pick` selects their scales.
template <class K>
__device__ __forceinline__ std::uint32_t multipliers_of(std::uint32_t word, std::uint32_t pick) {
  using Format = typename K::Format;
  const std::uint32_t both = __byte_perm(word, 0, pick);  // a byte in each half
  if constexpr (K::Scheme::has_tensor_scale) {
    // As exponent and mantissa of bfloat16 they are 2^-120 times the scales.
    constexpr int exponent = 127 - Format::bias + K::weight_exponent;
    return multiply_pair(multiply_pair((both << 4) & 0x07F007F0u, (120 + 127) * 0x00800080u),
                         static_cast<std::uint32_t>(exponent + 127) * 0x00800080u);
  } else {
    int offset = 0;
    if constexpr (!Format::is_integer) offset = 127 - Format::bias + K::weight_exponent;
    return both * 128 + static_cast<std::uint32_t>(offset) * 0x00800080u;
  }
}

// A pair times one of two factors, which an instruction picks by itself.
template <int Half>
__device__ __forceinline__ std::uint32_t multiply_by_half(std::uint32_t pair,
                                                          std::uint32_t factors) {
  std::uint32_t product;
  if constexpr (Half == 0) {
    asm("{\n.reg .b16 low, high;\n.reg .b32 both;\nmov.b32 {low, high}, %2;\n"
        "mov.b32 both, {low, low};\nmul.rn.bf16x2 %0, %1, both;\n}\n"
        : "=r"(product)
        : "r"(pair), "r"(factors));
  } else {
    asm("{\n.reg .b16 low, high;\n.reg .b32 both;\nmov.b32 {low, high}, %2;\n"
        "mov.b32 both, {high, high};\nmul.rn.bf16x2 %0, %1, both;\n}\n"
        : "=r"(product)
        : "r"(pair), "r"(factors));
  }
  return product;
}

}  // namespace mxkern::kernels::few
