// check/any_scheme.h: the checks of schemes and formats that are known at run time.
#pragma once

#include "mxkern/tensor/any_scheme.h"

namespace mxkern {

// Throw InvalidArgument for a format whose values float32 does not hold, and for a scheme that no
// operation takes.
void check_any_format(const char* function, const AnyFormat& format);
void check_any_scheme(const char* function, const AnyScheme& scheme);

}  // namespace mxkern
