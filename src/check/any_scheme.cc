// check/any_scheme.cc: the checks of schemes and formats that are known at run time.
#include "check/any_scheme.h"

#include "mxkern/core/error.h"

namespace mxkern {

void check_any_format(const char* function, const AnyFormat& format) {
  check(format.is_in_float32(), function, ": an element format of ", format.exponent_bits,
        " exponent and ", format.mantissa_bits,
        " mantissa bits, with such specials, is none whose values float32 holds; expected 0 to 8 "
        "exponent bits and 0 to 23 mantissa bits, IEEE specials with 8 exponent bits and none "
        "without mantissa bits, and integers of 2 to 16 bits");
}

void check_any_scheme(const char* function, const AnyScheme& scheme) {
  const AnyFormat& element = scheme.element;
  check_any_format(function, element);
  check(element.exponent_bits <= 5 && element.mantissa_bits <= 16 && element.width() <= 16,
        function, ": elements of ", element.exponent_bits, " exponent and ", element.mantissa_bits,
        " mantissa bits under block scales; expected at most 5 exponent bits and 16 bits in all; "
        "round_to takes others");
  check(scheme.scale.is_valid(), function, ": a scale format of ", scheme.scale.exponent_bits,
        " exponent and ", scheme.scale.mantissa_bits,
        " mantissa bits; expected 2 to 8 exponent bits, or 1 to 8 with 1 to 10 mantissa bits");
  check(scheme.block_rows >= 0 && scheme.block_columns >= 0 &&
            (scheme.block_rows > 0 || scheme.block_columns == 0),
        function, ": blocks of ", scheme.block_rows, " x ", scheme.block_columns,
        "; expected positive extents, 1 x 0 for whole rows, or 0 x 0 for the whole tensor");
  check(!scheme.has_tensor_scale() || scheme.scale.kind == AnyScaleKind::magnitude, function,
        ": a tensor scale beside block scales that reach as far; expected block scales with "
        "mantissa bits and less than float32's");
  check(scheme.tensor_scales != TensorScales::row || scheme.block_rows == 1, function,
        ": a tensor scale for each row with blocks of ", scheme.block_rows,
        " rows; expected blocks of one row");
}

}  // namespace mxkern
