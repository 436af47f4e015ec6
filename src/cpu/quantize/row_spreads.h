// cpu/quantize/row_spreads.h: how far apart the block scales of rows lie.
#pragma once

#include <cstdint>

#include "mxkern/tensor/block_scaled.h"

namespace mxkern::cpu {

// For each row of q, of a scheme that can be folded: the octaves from its largest scale to the
// smallest one of a block that is not all zeros, 255 for 255 and more. NaN does not count. It is
// what folding finds on a GPU.
void find_row_spreads(const BlockScaled& q, std::uint8_t* spreads);

}  // namespace mxkern::cpu
