// cuda/runtime/visit_input.h: what an input is, as constants.
#pragma once

#include <type_traits>

#include "mxkern/core/dtype.h"
#include "mxkern/numerics/rounding.h"

namespace mxkern::cuda {

// Calls body(TypeTag<T>{}, integral_constant<Rounding, R>{}, bool_constant<Plain>{}).
template <class Body>
void visit_input(DType dtype, Rounding rounding, bool plain, Body&& body) {
  visit(dtype, [&](auto type) {
    visit(rounding, [&](auto rounding_constant) {
      if (plain) {
        body(type, rounding_constant, std::bool_constant<true>{});
      } else {
        body(type, rounding_constant, std::bool_constant<false>{});
      }
    });
  });
}

}  // namespace mxkern::cuda
