// tests/support/quantize_options.h: every combination of the options of quantization, and its name.
#pragma once

#include <string>

#include "mxkern/core/error.h"
#include "mxkern/quantize.h"
#include "tests/support/tensor.h"

namespace mxkern::test {

inline std::string describe(const Tensor& x, const QuantizeOptions& options) {
  return concatenate(name_of(x.dtype()), ", ", name_of(options.scale_rule), ", ",
                     name_of(options.rounding),
                     options.block_shape == BlockShape::square ? ", square" : ", row",
                     options.four_over_six ? ", 4over6 by " : "",
                     options.four_over_six ? name_of(options.block_error) : "", ", Hadamard ",
                     options.hadamard.size);
}

// The options that a scheme has, but for transforms.
template <class Visitor>
void for_each_option(Scheme scheme, Visitor&& visitor) {
  const bool nvfp4 = facts_of(scheme).has_tensor_scale;
  for (const Rounding rounding : all_roundings) {
    for (const BlockShape block_shape : all_block_shapes) {
      for (int choice = 0; choice < (nvfp4 ? 3 : 4); ++choice) {
        QuantizeOptions options;
        options.rounding = rounding;
        options.seed = 0x123456789ABCDEFu;
        options.offset = 5;
        options.block_shape = block_shape;
        options.four_over_six = nvfp4 && choice > 0;
        if (options.four_over_six) options.block_error = all_block_errors[choice - 1];
        if (!nvfp4) options.scale_rule = all_scale_rules[choice];
        visitor(options);
      }
    }
  }
}

}  // namespace mxkern::test
