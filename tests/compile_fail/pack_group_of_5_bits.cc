// tests/compile_fail/pack_group_of_5_bits.cc: four codes of 5 bits do not end on a byte.
#include "mxkern/tensor/packing.h"

int bytes() { return mxkern::PackGroup<5>::bytes; }
