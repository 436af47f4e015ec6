// tests/support/any_schemes.h: schemes and options of the user's own from random numbers, and
// memory for what they give.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <random>
#include <vector>

#include "mxkern/custom.h"

namespace mxkern::test {

// Codes, scales and tensor scales of a tensor.
struct AnyMemory {
  std::vector<std::byte> codes, scales;
  std::vector<float> tensor_scale;
  AnyBlockScaled view;

  AnyMemory(const AnyScheme& scheme, const Shape& shape,
            ScaleLayout layout = ScaleLayout::row_major)
      : codes(static_cast<std::size_t>(shape.batch * shape.rows *
                                       scheme.code_row_bytes(shape.columns)),
              std::byte{0xA5}),
        scales(static_cast<std::size_t>(scheme.scale_bytes(shape, layout)), std::byte{0xA5}),
        tensor_scale(static_cast<std::size_t>(scheme.tensor_scale_count(shape))),
        view{scheme, shape, layout, codes.data(), scales.data(), tensor_scale.data(), {}} {}

  friend bool operator==(const AnyMemory& a, const AnyMemory& b) {
    return a.codes == b.codes && a.scales == b.scales &&
           std::equal(a.tensor_scale.begin(), a.tensor_scale.end(), b.tensor_scale.begin(),
                      b.tensor_scale.end(), [](float left, float right) {
                        return std::memcmp(&left, &right, sizeof(float)) == 0;
                      });
  }
};

// A scheme and options from random numbers.
struct Drawn {
  AnyScheme scheme;
  AnyOptions options;
};

inline Drawn draw(std::mt19937_64& random) {
  const auto below = [&](std::uint64_t n) { return static_cast<int>(random() % n); };
  Drawn drawn;
  AnyScheme& scheme = drawn.scheme;
  do {
    scheme.element = below(3) == 0 ? AnyFormat::integer(2 + below(15), below(2) == 0)
                                   : AnyFormat{below(6), below(11), below(4) != 0, false,
                                               static_cast<Specials>(below(3))};
  } while (!scheme.element.is_in_float32());
  const int kind = below(3);
  scheme.scale = kind == 0   ? AnyScaleFormat{AnyScaleKind::power, 4 + below(5), 0}
                 : kind == 1 ? AnyScaleFormat{AnyScaleKind::magnitude, 2 + below(5), 1 + below(6)}
                             : AnyScaleFormat{AnyScaleKind::single, 8, 23};
  const std::int64_t sizes[] = {1, 3, 8, 16, 20, 32, 100, 128, 1000, 0};
  scheme.block_columns = sizes[below(10)];
  scheme.block_rows = scheme.block_columns == 0 ? below(2) : below(3) == 0 ? 1 + below(20) : 1;
  if (kind == 1) scheme.tensor_scales = static_cast<TensorScales>(below(3));
  if (scheme.tensor_scales == TensorScales::row && scheme.block_rows != 1) {
    scheme.tensor_scales = TensorScales::tensor;
  }
  AnyOptions& options = drawn.options;
  options.rounding = {all_any_roundings[below(6)], 1 + below(16), below(2) == 0, below(2) == 0};
  if (kind == 0) options.scale.rule = all_scale_rules[below(4)];
  if (kind == 0 && options.scale.rule == ScaleRule::rceil && below(2) == 0) {
    options.scale.threshold = 1.0f + static_cast<float>(below(100)) / 101.0f;
  }
  options.scale.mse = below(3) == 0;
  options.seed = random();
  options.square = scheme.block_rows == 1 && scheme.block_columns > 0 &&
                   scheme.tensor_scales != TensorScales::row && below(3) == 0;
  options.words_are_transposed = below(4) == 0;
  return drawn;
}

}  // namespace mxkern::test
