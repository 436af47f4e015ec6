// check_quantize.h: what the options of a quantization ask for, and the checks of them.
#pragma once

#include "mxkern/quantize.h"

namespace mxkern {

// Valid options for out's scheme, on its device; x has this shape as the direction sees it.
void check_quantize_options(const char* function, const BlockScaled& out,
                            const QuantizeOptions& options, const Shape& shape);

// Whether the amax of NVFP4 is computed from x.
inline bool finds_amax(const BlockScaled& out, const QuantizeOptions& options) {
  return facts_of(out.scheme).has_tensor_scale && options.amax == nullptr &&
         options.tensor_scale == nullptr;
}

}  // namespace mxkern
