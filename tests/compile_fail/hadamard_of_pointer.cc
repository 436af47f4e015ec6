// tests/compile_fail/hadamard_of_pointer.cc: a group carries its size in its type.
#include "mxkern/numerics/hadamard.h"

void transform(float* x) { mxkern::random_hadamard(x, mxkern::default_sign_mask); }
