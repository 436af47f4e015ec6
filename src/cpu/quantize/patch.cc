// cpu/quantize/patch.cc: turns, transforms and randomizes a small piece of x.
#include "cpu/quantize/patch.h"

#include <algorithm>
#include <cstring>

namespace mxkern::cpu {

TileShape patch_shape(const LineSource& source, const Tile& tile, std::int64_t group) {
  if (!source.transposed) return line_tile({1, tile.rows, tile.columns}, group, Patch::capacity);
  // Lines of one unit: more of them make longer stretches of the rows of x.
  const std::int64_t elements = std::min(tile.rows, line_unit);
  const TileShape lines = line_tile({1, tile.columns, elements}, group, Patch::capacity);
  return {elements, lines.rows};
}

Lines lines_in_place(const LineSource& source, const Tile& part) {
  const Buffer& x = source.x;
  return {address(x, part.batch, part.row, part.column), x.row_stride, part.rows, part.columns};
}

Lines Patch::load(const LineSource& source, const Tile& part) {
  if (source.is_direct()) return lines_in_place(source, part);
  const Buffer& x = source.x;
  const auto size = static_cast<std::int64_t>(size_of(x.dtype));
  const std::byte* from = address(x, part.batch, part.row, part.column);
  const KernelTable::HadamardLine hadamard = source.kernels.hadamard[static_cast<int>(x.dtype)];
  if (source.transposed) {
    const KernelTable::Transpose transpose =
        size == 4 ? source.kernels.transpose_32 : source.kernels.transpose_16;
    transpose(from, x.row_stride, elements_, part.rows, part.rows, part.columns);
    if (source.signs.size != 0) {
      hadamard(elements_, elements_, part.rows * part.columns, source.signs, false);
    }
    return {elements_, part.rows, part.columns, part.rows};
  }
  for (std::int64_t line = 0; line < part.rows; ++line) {
    hadamard(from + line * x.row_stride * size, elements_ + line * part.columns * size,
             part.columns, source.signs, false);
  }
  return {elements_, part.columns, part.rows, part.columns};
}

Lines Patch::load_across(const LineSource& source, const Tile& part) {
  const Buffer& x = source.x;
  const auto size = static_cast<std::int64_t>(size_of(x.dtype));
  const std::int64_t stride = round_up(part.columns, widest_lanes);
  for (std::int64_t row = 0; row < part.rows; ++row) {
    std::byte* target = elements_ + row * stride * size;
    std::memcpy(target, address(x, part.batch, part.row + row, part.column),
                static_cast<std::size_t>(part.columns * size));
    std::memset(target + part.columns * size, 0,
                static_cast<std::size_t>((stride - part.columns) * size));
  }
  source.kernels.hadamard_across[static_cast<int>(x.dtype)](elements_, stride, part.rows, stride,
                                                            source.signs);
  return {elements_, stride, part.rows, part.columns};
}

const std::uint16_t* Patch::load_random(const LineSource& source, const Tile& part,
                                        std::uint64_t seed, std::uint64_t offset) {
  const Shape& shape = source.x.shape;
  std::uint64_t index = first_index(shape, part);
  for (std::int64_t row = 0; row < part.rows; ++row) {
    source.kernels.random_words(seed, offset, index, part.columns, random_ + row * part.columns);
    index += static_cast<std::uint64_t>(shape.columns);
  }
  if (!source.transposed) return random_;
  source.kernels.transpose_16(random_, part.columns, transposed_random_, part.rows, part.rows,
                              part.columns);
  return transposed_random_;
}

}  // namespace mxkern::cpu
