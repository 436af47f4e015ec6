// cpu/any/choice.h: the scale of a block as the best one of three.
#pragma once

#include <cstdint>

#include "cpu/any/kernels.h"
#include "mxkern/custom.h"

namespace mxkern::cpu {

// A block's scale and its neighbours, and the errors that each leaves.
template <class Word>
class AnyChoice {
 public:
  using Float = typename MachineFloat<Word>::Float;
  struct Parts {
    const AnyScaler& scaler;
    const AnyKernelsOf<Word>& kernels;
    const AnyWay<Word>& way;
    const AnyDecoder<Word>& decoder;
  };

  AnyChoice(const Parts& work, const AnyBlockScale& first, const TensorScale& tensor)
      : work_(work) {
    candidates_[0] = first;
    for (int side = 0; side < 2; ++side) {
      const std::uint32_t code = work.scaler.neighbour(first.code, 2 * side - 1);
      candidates_[1 + side] = work.scaler.of_code(code, tensor);
    }
    for (int i = 0; i < 3; ++i) {
      const float ratio = first.value == 0.0f ? 1.0f : candidates_[i].value / first.value;
      errors_[i] = {static_cast<Float>(first.multiplier),
                    static_cast<Float>(candidates_[i].multiplier), static_cast<Float>(ratio)};
    }
  }

  void add(const void* x, std::int64_t count) {
    for (int i = 0; i < 3; ++i) {
      work_.kernels.add_errors(x, count, errors_[i], work_.way, work_.decoder, parts_[i]);
    }
  }

  const AnyBlockScale& best() {
    int best = 0;
    for (int i = 0; i < 3; ++i) {
      for (int stride = error_parts / 2; stride > 0; stride /= 2) {
        for (int j = 0; j < stride; ++j) parts_[i][j] += parts_[i][j + stride];
      }
      if (parts_[i][0] < parts_[best][0]) best = i;
    }
    return candidates_[best];
  }

 private:
  const Parts work_;
  AnyBlockScale candidates_[3];
  AnyErrors<Float> errors_[3];
  Float parts_[3][error_parts] = {};
};

}  // namespace mxkern::cpu
