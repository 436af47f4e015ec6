// tests/compile_fail/bits_of_double.cc: a double does not become a float32 silently.
#include "mxkern/core/math.h"

auto bits() { return mxkern::bits_of(1.0); }
