// bindings/numbers.h: Python's numbers, which are float64, as the library's.
#pragma once

#include "mxkern/core/math.h"
#include "mxkern/gemm.h"

namespace mxkern::bindings {

// Not a cast: threads that take subnormal numbers for zero make none of a float64 either.
inline float nearest_float(double value) { return float_of(float32::nearest_bits(value)); }

inline GemmOptions gemm_options(double alpha, double beta) {
  GemmOptions options;
  options.alpha = nearest_float(alpha);
  options.beta = nearest_float(beta);
  return options;
}

}  // namespace mxkern::bindings
