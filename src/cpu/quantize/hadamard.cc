// cpu/quantize/hadamard.cc: the random Hadamard transform of a tensor in parallel.
#include "cpu/backend.h"
#include "cpu/quantize/tiles.h"

namespace mxkern::cpu {

void random_hadamard(const Buffer& x, const Buffer& out, const Hadamard& hadamard, bool inverse,
                     const KernelTable& kernels) {
  if (x.shape.size() == 0) return;
  const HadamardSigns signs(hadamard.size, hadamard.signs);
  const KernelTable::HadamardLine kernel = kernels.hadamard[static_cast<int>(x.dtype)];
  for_each_tile(x.shape, line_tile(x.shape, 1, tile_elements), [&](const Tile& tile) {
    for (std::int64_t row = tile.row; row < tile.row + tile.rows; ++row) {
      kernel(address(x, tile.batch, row, tile.column), address(out, tile.batch, row, tile.column),
             tile.columns, signs, inverse);
    }
  });
}

}  // namespace mxkern::cpu
