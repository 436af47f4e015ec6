// cpu/quantize/tensor_amax.h: the largest finite magnitudes that directions of quantize see.
#pragma once

#include <span>

#include "cpu/quantize/patch.h"

namespace mxkern::cpu {

// amaxes[i] = the largest finite magnitude of the lines of *sources[i], 0 if there is none; at most
// two sources, in one pass over the x that they share.
void find_amaxes(std::span<const LineSource* const> sources, float* amaxes);

}  // namespace mxkern::cpu
