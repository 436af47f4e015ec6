// cpu/gemm/scale_row.h: the scales of one row of an operand, in either layout.
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/gemm/kernels.h"
#include "mxkern/tensor/scale_layout.h"

namespace mxkern::cpu {
namespace {

// Walks the scales of a row: row_major one after the other, swizzled in groups of four.
struct ScaleRow {
  const std::uint8_t* first;
  std::int64_t group_stride;

  ScaleRow(const GemmMatrix& matrix, std::int64_t row)
      : first(matrix.scales + matrix.scale_index.offset(row, 0)),
        group_stride(matrix.scale_index.layout == ScaleLayout::row_major ? ScaleIndex::tile_blocks
                                                                         : ScaleIndex::tile_bytes) {
  }

  const std::uint8_t* group(std::int64_t block) const {
    return first + block / ScaleIndex::tile_blocks * group_stride;
  }

  std::uint8_t byte(std::int64_t block) const {
    return group(block)[block % ScaleIndex::tile_blocks];
  }

  // Scales that lie one behind the other, from `block` on; null where they lie in groups.
  const std::uint8_t* run(std::int64_t block) const {
    return group_stride == ScaleIndex::tile_blocks ? first + block : nullptr;
  }

  // `count` scales from `block` on.
  void copy(std::int64_t block, int count, std::uint8_t* out) const {
    if (const std::uint8_t* bytes = run(block)) {
      std::memcpy(out, bytes, static_cast<std::size_t>(count));
      return;
    }
    for (; count > 0 && block % ScaleIndex::tile_blocks != 0; --count) *out++ = byte(block++);
    for (int i = 0; i < count; i += ScaleIndex::tile_blocks) {
      std::memcpy(out + i, group(block + i), ScaleIndex::tile_blocks);
    }
  }
};

}  // namespace
}  // namespace mxkern::cpu
