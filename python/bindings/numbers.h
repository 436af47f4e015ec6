// bindings/numbers.h: Python's numbers, which are float64, as the library's.
#pragma once

#include "mxkern/core/math.h"

namespace mxkern::bindings {

// Not a cast: threads that take subnormal numbers for zero make none of a float64 either.
inline float nearest_float(double value) { return float_of(float32::nearest_bits(value)); }

}  // namespace mxkern::bindings
