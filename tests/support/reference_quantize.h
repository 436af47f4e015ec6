// tests/support/reference_quantize.h: quantize as plain loops over the public numerics.
#pragma once

#include <cstdint>
#include <vector>

#include "mxkern/numerics/block_scale.h"
#include "mxkern/numerics/rounding.h"
#include "mxkern/quantize.h"
#include "tests/support/slow_philox.h"
#include "tests/support/tensor.h"

namespace mxkern::test {

// What a direction quantizes: [batch][line][element], and the index of each element in x.
struct ReferenceLines {
  Shape shape;
  bool transposed;  // the lines are columns of x
  std::vector<float> values;
  std::vector<std::uint64_t> index;

  std::size_t at(std::int64_t b, std::int64_t line, std::int64_t element) const {
    return static_cast<std::size_t>((b * shape.rows + line) * shape.columns + element);
  }
};

template <int size>
void transform_group(float* group, DType dtype, SignMask signs, bool inverse) {
  float values[size];
  std::copy(group, group + size, values);
  if (inverse) {
    inverse_random_hadamard(values, signs);
  } else {
    random_hadamard(values, signs);
  }
  for (int i = 0; i < size; ++i) {
    group[i] = visit(dtype, [&](auto tag) {
      return to_float(from_float<typename decltype(tag)::type>(values[i]));
    });
  }
}

inline void transform_lines(std::vector<float>& values, DType dtype, const Hadamard& hadamard,
                            bool inverse = false) {
  for (std::size_t i = 0; i < values.size(); i += static_cast<std::size_t>(hadamard.size)) {
    float* group = values.data() + i;
    switch (hadamard.size) {
      case 16: transform_group<16>(group, dtype, hadamard.signs, inverse); break;
      case 32: transform_group<32>(group, dtype, hadamard.signs, inverse); break;
      case 64: transform_group<64>(group, dtype, hadamard.signs, inverse); break;
      case 128: transform_group<128>(group, dtype, hadamard.signs, inverse); break;
      default: FAIL() << "no transform of size " << hadamard.size;
    }
  }
}

inline ReferenceLines reference_lines(const Tensor& x, bool transposed, const Hadamard& hadamard) {
  ReferenceLines lines;
  lines.transposed = transposed;
  lines.shape = transposed ? x.shape().transposed() : x.shape();
  lines.values.resize(static_cast<std::size_t>(lines.shape.size()));
  lines.index.resize(lines.values.size());
  std::uint64_t index = 0;
  x.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
    const std::size_t at = transposed ? lines.at(b, c, r) : lines.at(b, r, c);
    lines.values[at] = x.get(b, r, c);
    lines.index[at] = index++;
  });
  if (hadamard.size != 0) transform_lines(lines.values, x.dtype(), hadamard);
  return lines;
}

inline float reference_amax(const std::vector<float>& values) {
  float amax = 0.0f;
  for (const float value : values) {
    const float magnitude = value < 0.0f ? -value : value;
    if (magnitude <= float32::largest() && magnitude > amax) amax = magnitude;
  }
  return amax;
}

template <class S>
BlockScale reference_block_scale(const ReferenceLines& lines, std::int64_t b, std::int64_t line,
                                 std::int64_t last_line, std::int64_t block,
                                 const QuantizeOptions& options, const TensorScale& tensor) {
  std::uint32_t amax = 0;
  // Row by row of x.
  const auto for_each = [&](auto&& visitor) {
    const std::int64_t first = block * S::block;
    const std::int64_t count = std::min<std::int64_t>(S::block, lines.shape.columns - first);
    const std::int64_t rows = lines.transposed ? count : last_line - line;
    const std::int64_t columns = lines.transposed ? last_line - line : count;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < columns; ++c) {
        visitor(lines.values[lines.transposed ? lines.at(b, line + c, first + r)
                                              : lines.at(b, line + r, first + c)]);
      }
    }
  };
  for_each([&](float value) { amax = std::max(amax, bits_of(value) & float32::magnitude_mask); });
  const BlockScale scale = block_scale<S>(amax, options.scale_rule, tensor);
  if constexpr (S::has_tensor_scale) {
    if (options.four_over_six && float32::is_finite(amax)) {
      const FourOverSix candidates = nvfp4_four_over_six(float_of(amax), tensor);
      float six = 0.0f;
      float four = 0.0f;
      for_each([&](float value) {
        const BlockScale a = candidates.six;
        const BlockScale c = candidates.four;
        six = nvfp4_add_error(options.block_error, six, value, encode<E2M1>(value * a.multiplier),
                              a.byte, tensor);
        four = nvfp4_add_error(options.block_error, four, value, encode<E2M1>(value * c.multiplier),
                               c.byte, tensor);
      });
      return four < six ? candidates.four : candidates.six;
    }
  }
  return scale;
}

template <class S>
void reference_codes(const ReferenceLines& lines, const QuantizeOptions& options,
                     const TensorScale& tensor, Quantized& result) {
  using Format = typename S::Format;
  const Shape& shape = lines.shape;
  const ScaleIndex index = result.view.scale_index();
  const std::int64_t row_bytes = code_row_bytes<S>(shape.columns);
  const std::int64_t group = options.block_shape == BlockShape::square ? S::block : 1;
  std::vector<BlockScale> scales(static_cast<std::size_t>(index.blocks));  // of a group of lines
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t line = 0; line < shape.rows; ++line) {
      for (std::int64_t block = 0; block < index.blocks; ++block) {
        BlockScale& scale = scales[static_cast<std::size_t>(block)];
        if (line % group == 0) {
          const std::int64_t last = std::min(line + group, shape.rows);
          scale = reference_block_scale<S>(lines, b, line, last, block, options, tensor);
        }
        const bool poisoned = scale.byte == S::ScaleFormat::nan_byte;
        std::uint8_t codes[S::block] = {};
        const std::int64_t count =
            std::min<std::int64_t>(S::block, shape.columns - block * S::block);
        for (std::int64_t i = 0; i < count; ++i) {
          const std::size_t at = lines.at(b, line, block * S::block + i);
          const float value = lines.values[at] * scale.multiplier;
          const auto stochastic = [&] {
            const std::uint32_t word =
                slow_random_word(options.seed, options.offset, lines.index[at]);
            return static_cast<std::uint8_t>(encode_stochastic_lanes<Format>(value, word));
          };
          codes[i] = poisoned                                   ? Format::poison_code
                     : options.rounding == Rounding::stochastic ? stochastic()
                                                                : encode<Format>(value);
        }
        std::uint8_t packed[S::block_bytes];
        pack<Format::bits>(codes, S::block, packed);
        std::memcpy(
            result.codes.data() + (b * shape.rows + line) * row_bytes + block * S::block_bytes,
            packed, static_cast<std::size_t>(Format::bits == 8 ? count : S::block_bytes));
        result.scales.data()[b * index.size() + index.offset(line, block)] = scale.byte;
      }
    }
  }
}

inline Quantized reference_quantize(const Tensor& x, bool transposed, Scheme scheme,
                                    ScaleLayout layout, const QuantizeOptions& options) {
  const ReferenceLines lines = reference_lines(x, transposed, options.hadamard);
  Quantized result(scheme, lines.shape, layout);
  std::memset(result.codes.data(), 0, static_cast<std::size_t>(result.codes.size()));
  std::memset(result.scales.data(), 0, static_cast<std::size_t>(result.scales.size()));
  visit(scheme, [&]<class S>(S) {
    TensorScale tensor = {};
    if constexpr (S::has_tensor_scale) {
      const float amax = options.amax != nullptr ? *options.amax : reference_amax(lines.values);
      tensor = options.tensor_scale != nullptr
                   ? TensorScale::from_decode_multiplier(*options.tensor_scale)
                   : TensorScale::from_amax(amax);
      result.tensor_scale = tensor.stored;
    }
    reference_codes<S>(lines, options, tensor, result);
  });
  return result;
}

}  // namespace mxkern::test
