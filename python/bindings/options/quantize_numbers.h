// bindings/options/quantize_numbers.h: options of quantize as numbers, in the order in which Python
// gives them.
#pragma once

#include <array>
#include <cstdint>

#include "mxkern/quantize.h"

namespace mxkern::bindings {

// scale rule, rounding, seed, offset, whether blocks are square, four over six (1 and the block
// error, or 0), size of the transform, and the halves of its sign mask.
using QuantizeNumbers = std::array<std::uint64_t, 9>;

inline QuantizeOptions quantize_options(const QuantizeNumbers& numbers) {
  QuantizeOptions options;
  options.scale_rule = static_cast<ScaleRule>(numbers[0]);
  options.rounding = static_cast<Rounding>(numbers[1]);
  options.seed = numbers[2];
  options.offset = numbers[3];
  options.block_shape = numbers[4] != 0 ? BlockShape::square : BlockShape::row;
  options.four_over_six = numbers[5] != 0;
  if (options.four_over_six) options.block_error = static_cast<BlockError>(numbers[5] - 1);
  options.hadamard = {static_cast<int>(numbers[6]), {numbers[7], numbers[8]}};
  return options;
}

inline QuantizeNumbers numbers_of(const QuantizeOptions& options) {
  return {static_cast<std::uint64_t>(options.scale_rule),
          static_cast<std::uint64_t>(options.rounding),
          options.seed,
          options.offset,
          options.block_shape == BlockShape::square,
          options.four_over_six ? 1 + static_cast<std::uint64_t>(options.block_error) : 0,
          static_cast<std::uint64_t>(options.hadamard.size),
          options.hadamard.signs.low,
          options.hadamard.signs.high};
}

}  // namespace mxkern::bindings
