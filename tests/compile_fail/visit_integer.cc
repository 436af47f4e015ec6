// tests/compile_fail/visit_integer.cc: a number is no scheme.
#include "mxkern/numerics/visit.h"

void find() {
  mxkern::visit(3, [](auto) {});
}
