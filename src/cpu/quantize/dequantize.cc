// cpu/quantize/dequantize.cc: dequantizes a tensor in parallel.
#include <algorithm>

#include "cpu/backend.h"
#include "cpu/runtime/cache.h"
#include "cpu/quantize/tiles.h"

namespace mxkern::cpu {

void dequantize(const BlockScaled& tensor, const Buffer& buffer, const KernelTable& kernels) {
  if (buffer.shape.size() == 0) return;
  BlockScaled q = tensor;
  Buffer out = buffer;
  if (is_one_line(q, out)) {
    out = as_one_line(out);
    q.shape = out.shape;
  }
  const KernelTable::Dequantize kernel =
      kernels.dequantize[static_cast<int>(q.scheme)][static_cast<int>(out.dtype)];
  const SchemeFacts facts = facts_of(q.scheme);
  const float tensor_scale = facts.has_tensor_scale ? *q.tensor_scale : 1.0f;
  const ScaleIndex index = q.scale_index();
  const std::int64_t code_stride = code_row_bytes(q.scheme, q.shape.columns);
  const bool streams =
      are_more_than_caches(out.shape.size() * static_cast<std::int64_t>(size_of(out.dtype)));
  for_each_tile(q.shape, line_tile(q.shape, 1, tile_elements), [&](const Tile& tile) {
    const std::int64_t row = tile.batch * q.shape.rows + tile.row;
    const std::int64_t block = tile.column / facts.block;
    kernel({.codes = q.codes + row * code_stride + block * facts.block_bytes,
            .code_stride = code_stride,
            .scales = {q.scales + tile.batch * index.size(), index, tile.row, block},
            .tensor_scale = tensor_scale,
            .lines = tile.rows,
            .elements = tile.columns,
            .out = address(out, tile.batch, tile.row, tile.column),
            .out_stride = out.row_stride,
            .streams = streams});
  });
}

}  // namespace mxkern::cpu
