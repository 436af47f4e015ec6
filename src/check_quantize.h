// check_quantize.h: the checks of how something is quantized.
#pragma once

#include "mxkern/quantize.h"

namespace mxkern {

// Valid options for out's scheme, on its device; x has this shape as the direction sees it.
void check_quantize_options(const char* function, const BlockScaled& out,
                            const QuantizeOptions& options, const Shape& shape);

}  // namespace mxkern
