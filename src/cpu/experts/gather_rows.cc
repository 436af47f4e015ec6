// cpu/experts/gather_rows.cc: copies of rows, in an order that a call gives, on the CPU.
#include "cpu/experts/gather_rows.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <variant>

#include "check/gemm_operand.h"
#include "cpu/quantize/tiles.h"

namespace mxkern::cpu {
namespace {

// Calls row(i, rows[i]) for all i below `count`, of rows of so many elements.
template <class Row>
void for_each_row(const std::int32_t* rows, std::int64_t count, std::int64_t elements, Row&& row) {
  const std::int64_t grain = grain_elements / std::max<std::int64_t>(elements, 1) + 1;
  parallel_for(count, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) row(i, std::int64_t{rows[i]});
  });
}

void copy_or_clear(void* to, const std::uint8_t* from, std::int64_t offset, std::int64_t bytes) {
  if (bytes == 0) return;
  if (offset < 0) {
    std::memset(to, 0, static_cast<std::size_t>(bytes));
  } else {
    std::memcpy(to, from + offset, static_cast<std::size_t>(bytes));
  }
}

void gather(const Buffer& from, const std::int32_t* rows, std::int64_t count, const Buffer& to) {
  const auto size = static_cast<std::int64_t>(size_of(from.dtype));
  const auto* source = static_cast<const std::uint8_t*>(from.data);
  auto* target = static_cast<std::uint8_t*>(to.data);
  for_each_row(rows, count, from.shape.columns, [&](std::int64_t i, std::int64_t row) {
    copy_or_clear(target + i * to.row_stride * size, source, row * from.row_stride * size,
                  from.shape.columns * size);
  });
}

void gather(const BlockScaled& from, const std::int32_t* rows, std::int64_t count,
            const BlockScaled& to) {
  const std::int64_t bytes = code_row_bytes(from.scheme, from.shape.columns);
  const ScaleIndex index = from.scale_index();
  for_each_row(rows, count, from.shape.columns, [&](std::int64_t i, std::int64_t row) {
    copy_or_clear(to.codes + i * bytes, from.codes, row * bytes, bytes);
    std::uint8_t* const scales = to.scales + i * index.blocks;
    if (row < 0 || index.layout == ScaleLayout::row_major) {
      return copy_or_clear(scales, from.scales, row * index.blocks, index.blocks);
    }
    for (std::int64_t block = 0; block < index.blocks; ++block) {
      scales[block] = from.scales[index.offset(row, block)];
    }
  });
}

}  // namespace

void gather_rows(const GemmOperand& from, const std::int32_t* rows, std::int64_t count,
                 const GemmOperand& to) {
  if (const auto* plain = std::get_if<Buffer>(&from)) {
    return gather(*plain, rows, count, std::get<Buffer>(to));
  }
  gather(*quantized_of(from), rows, count, *quantized_of(to));
}

}  // namespace mxkern::cpu
