// mxkern/scales.h: block scales from one layout to the other.
#pragma once

#include <cstdint>

#include "mxkern/core/device.h"
#include "mxkern/core/platform.h"
#include "mxkern/tensor/scale_layout.h"

namespace mxkern {

// Copies `batch` matrices of rows x blocks scales from row_major to swizzled; padding becomes 0.
// swizzled: batch * ScaleIndex{rows, blocks, ScaleLayout::swizzled}.size() bytes. Throws
// InvalidArgument for extents below zero or too large, null pointers and memory that overlaps.
MXKERN_API void swizzle_scales(const std::uint8_t* row_major, std::uint8_t* swizzled,
                               std::int64_t batch, std::int64_t rows, std::int64_t blocks,
                               Device device = {}, Stream stream = {});

// The inverse, with the same errors; padding is not read.
MXKERN_API void unswizzle_scales(const std::uint8_t* swizzled, std::uint8_t* row_major,
                                 std::int64_t batch, std::int64_t rows, std::int64_t blocks,
                                 Device device = {}, Stream stream = {});

}  // namespace mxkern
