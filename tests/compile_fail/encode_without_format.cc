// tests/compile_fail/encode_without_format.cc: a plain type is no element format.
#include "mxkern/numerics/codec.h"

auto code() { return mxkern::encode<float>(1.0f); }
