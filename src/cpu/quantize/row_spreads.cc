// cpu/quantize/row_spreads.cc: how far apart the block scales of rows lie.
#include "cpu/quantize/row_spreads.h"

#include <algorithm>

#include "cpu/quantize/tiles.h"
#include "mxkern/numerics/fold.h"
#include "mxkern/numerics/scale_format.h"
#include "mxkern/numerics/visit.h"
#include "mxkern/tensor/packing.h"

namespace mxkern::cpu {
namespace {

// Blocks of a row whose scales are looked at together.
struct SpreadRow {
  const std::uint8_t* codes;
  const std::uint8_t* scales;  // of the matrix
  ScaleIndex index;
  std::int64_t row;

  std::uint8_t scale(std::int64_t block) const { return scales[index.offset(row, block)]; }
};

// Whether some code of a block has a magnitude. Codes fill whole bytes of a block, the padding of
// the last one included.
template <class S>
bool has_magnitude(const std::uint8_t* codes, std::int64_t bytes) {
  using Format = typename S::Format;
  // The signs of codes in three bytes, a period of every packing.
  std::uint32_t signs = 0;
  for (int bit = Format::bits - 1; bit < 24; bit += Format::bits) signs |= 1u << bit;
  for (std::int64_t i = 0; i < bytes; ++i) {
    if ((codes[i] & ~(signs >> (8 * (i % 3)))) != 0) return true;
  }
  return false;
}

template <class S>
std::uint8_t spread_of(const SpreadRow& row, std::int64_t row_bytes) {
  int largest = -1;
  for (std::int64_t block = 0; block < row.index.blocks; ++block) {
    const int scale = row.scale(block);
    if (scale != E8M0::nan_byte) largest = std::max(largest, scale);
  }
  const std::int64_t block_bytes = S::block * S::Format::bits / 8;
  int spread = 0;
  for (std::int64_t block = 0; block < row.index.blocks; ++block) {
    const int distance = largest - row.scale(block);
    if (row.scale(block) == E8M0::nan_byte || distance <= spread) continue;
    const std::int64_t at = block * block_bytes;
    const std::int64_t bytes = std::min(block_bytes, row_bytes - at);
    if (has_magnitude<S>(row.codes + at, bytes)) spread = distance;
  }
  return static_cast<std::uint8_t>(spread);
}

}  // namespace

void find_row_spreads(const BlockScaled& q, std::uint8_t* spreads) {
  const std::int64_t row_bytes = code_row_bytes(q.scheme, q.shape.columns);
  const std::int64_t rows = q.shape.batch * q.shape.rows;
  const ScaleIndex index = q.scale_index();
  const std::int64_t grain = grain_elements / std::max<std::int64_t>(q.shape.columns, 1) + 1;
  parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end) {
    visit(q.scheme, [&]<class S>(S) {
      if constexpr (scheme_can_fold<S>) {
        for (std::int64_t i = begin; i < end; ++i) {
          const SpreadRow row{q.codes + i * row_bytes, q.scales + i / q.shape.rows * index.size(),
                              index, i % q.shape.rows};
          spreads[i] = spread_of<S>(row, row_bytes);
        }
      }
    });
  });
}

}  // namespace mxkern::cpu
