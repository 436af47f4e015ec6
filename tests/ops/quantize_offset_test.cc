// tests/ops/quantize_offset_test.cc: an offset of stochastic rounding that lies in memory.
#include <gtest/gtest.h>

#include "mxkern/quantize.h"
#include "tests/support/compare_quantized.h"
#include "tests/support/error_message.h"
#include "tests/support/quantize_options.h"

namespace mxkern {
namespace {

using namespace test;

TEST(QuantizeOffset, InMemory) {
  Tensor x(DType::bfloat16, {1, 48, 80});
  fill_mixed(x, 5);
  const Shape turned = x.shape().transposed();
  QuantizeOptions options, elsewhere;
  options.rounding = elsewhere.rounding = Rounding::stochastic;
  options.seed = elsewhere.seed = 7;
  options.offset = (std::uint64_t{3} << 32) + 11;
  const std::uint64_t memory = options.offset;
  elsewhere.offset_at = &memory;
  Quantized rows(Scheme::mxfp4, x.shape(), ScaleLayout::row_major), same_rows = rows;
  Quantized columns(Scheme::mxfp4, turned, ScaleLayout::row_major), same_columns = columns;
  quantize_both(x.buffer(), rows.out(), columns.out(), options, options);
  quantize_both(x.buffer(), same_rows.out(), same_columns.out(), elsewhere, elsewhere);
  EXPECT_TRUE(same_bytes(rows, same_rows));
  EXPECT_TRUE(same_bytes(columns, same_columns));
  options.offset = 0;
  quantize(x.buffer(), same_rows.out(), options);
  EXPECT_FALSE(same_bytes(rows, same_rows)) << "the offset changes nothing";
  elsewhere.offset_at = reinterpret_cast<const std::uint64_t*>(rows.out().codes);
  EXPECT_EQ(error_message([&] { quantize(x.buffer(), rows.out(), elsewhere); }),
            "quantize: out.codes overlaps offset_at; expected memory of its own; write to another "
            "buffer and copy it");
  elsewhere.offset_at = reinterpret_cast<const std::uint64_t*>(
      reinterpret_cast<const char*>(&memory) + sizeof(std::uint32_t));
  EXPECT_EQ(error_message([&] { quantize(x.buffer(), rows.out(), elsewhere); }),
            "quantize: offset_at is misaligned; expected an address that is a multiple of 8 bytes");
}

}  // namespace
}  // namespace mxkern
