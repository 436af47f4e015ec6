// cpu/experts/swiglu.cc: SwiGLU of a tensor in parallel.
#include "cpu/experts/swiglu.h"

#include "cpu/quantize/tiles.h"

namespace mxkern::cpu {

void swiglu(const Buffer& x, const Buffer& out, const SwigluOptions& options,
            const KernelTable& kernels) {
  if (out.shape.size() == 0) return;
  const bool is_interleaved = options.layout == GateLayout::interleaved;
  const KernelTable::SwigluLine kernel =
      kernels.swiglu[static_cast<int>(x.dtype)][is_interleaved ? 1 : 0];
  for_each_tile(out.shape, line_tile(out.shape, 1, tile_elements), [&](const Tile& tile) {
    for (std::int64_t row = tile.row; row < tile.row + tile.rows; ++row) {
      const std::int64_t first = is_interleaved ? 2 * tile.column : tile.column;
      kernel(
          {address(x, tile.batch, row, first),
           is_interleaved ? nullptr : address(x, tile.batch, row, out.shape.columns + tile.column),
           address(out, tile.batch, row, tile.column), tile.columns, options.alpha, options.limit,
           options.offset});
    }
  });
}

}  // namespace mxkern::cpu
