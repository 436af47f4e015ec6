// tests/ops/prepare_both_test.cc: both directions of a tensor on the CPU, their spreads, and what
// is refused.
#include "mxkern/prepare_both.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "mxkern/core/error.h"
#include "tests/support/error_message.h"
#include "tests/support/gemm_operand.h"

namespace mxkern {
namespace {

using namespace test;

constexpr Scheme foldable[] = {Scheme::mxfp8_e4m3, Scheme::mxfp8_e5m2, Scheme::mxfp6_e3m2,
                               Scheme::mxfp6_e2m3, Scheme::mxfp4};

// From the values and scales of a row, one after another.
std::vector<std::uint8_t> spreads_of(QuantizedOperand& q) {
  std::vector<std::uint8_t> found;
  const Shape shape = q.view.shape;
  for (std::int64_t r = 0; r < shape.batch * shape.rows; ++r) {
    const std::int64_t b = r / shape.rows, row = r % shape.rows;
    int largest = 0, smallest = 255;
    for (std::int64_t k = 0; k < shape.columns; k += 32) {
      const int scale = q.scale(b, row, k / 32);
      if (scale == 255) continue;
      largest = std::max(largest, scale);
      for (std::int64_t i = k; i < std::min(k + 32, shape.columns); ++i) {
        if (q.value(b, row, i) != 0.0) smallest = std::min(smallest, scale);
      }
    }
    found.push_back(static_cast<std::uint8_t>(smallest > largest ? 0 : largest - smallest));
  }
  return found;
}

struct Both {
  QuantizedOperand rows, columns;
  std::vector<std::uint8_t> row_spreads, column_spreads;

  Both(Scheme scheme, const Shape& shape)
      : rows(scheme, shape, ScaleLayout::row_major),
        columns(scheme, shape.transposed(), ScaleLayout::swizzled),
        row_spreads(static_cast<std::size_t>(shape.batch * shape.rows), 77),
        column_spreads(static_cast<std::size_t>(shape.batch * shape.columns), 77) {}

  PreparedOperand side(QuantizedOperand& q) { return {PreparedForm::source, q.quantized()}; }
};

// Blocks at distances of up to 70 octaves, some of zeros, some of NaN.
Values wild() {
  const Values normal = normal_values(5);
  return [normal](std::int64_t b, std::int64_t r, std::int64_t k) {
    const auto kind = (r / 32 * 5 + k / 32 * 3 + b) % 11;
    if (kind == 3) return 0.0;
    if (kind == 7 && r % 32 == 1 && k % 32 == 2) return std::nan("");
    return std::ldexp(normal(b, r, k), static_cast<int>(kind * 7 - 35));
  };
}

TEST(PrepareBoth, IsQuantizeBothAndSpreads) {
  for (const Scheme scheme : foldable) {
    for (const DType dtype : all_dtypes) {
      if (dtype == DType::float16) continue;  // it has fewer octaves
      for (const Shape& shape : {Shape{1, 130, 200}, Shape{3, 33, 64}, Shape{1, 1, 1}}) {
        PlainTensor x(dtype, shape, 5, 2);
        x.fill(wild());
        Both got(scheme, shape), wanted(scheme, shape);
        QuantizeOptions options;
        options.scale_rule = ScaleRule::floor;
        prepare_both(x.buffer(), got.side(got.rows), got.side(got.columns),
                     {got.row_spreads.data(), got.column_spreads.data()}, options, {});
        quantize_both(x.buffer(), wanted.rows.quantized(), wanted.columns.quantized(), options,
                      options);
        const std::string name = name_of(scheme);
        ASSERT_EQ(got.rows.codes, wanted.rows.codes) << name;
        ASSERT_EQ(got.rows.scales, wanted.rows.scales) << name;
        ASSERT_EQ(got.columns.codes, wanted.columns.codes) << name;
        ASSERT_EQ(got.columns.scales, wanted.columns.scales) << name;
        ASSERT_EQ(got.row_spreads, spreads_of(wanted.rows)) << name;
        ASSERT_EQ(got.column_spreads, spreads_of(wanted.columns)) << name;
      }
    }
  }
}

TEST(PrepareBoth, ShapesThatHaveLittle) {
  PlainTensor x(DType::float32, {1, 5, 0});
  Both both(Scheme::mxfp4, {1, 5, 0});
  prepare_both(x.buffer(), both.side(both.rows), both.side(both.columns),
               {both.row_spreads.data(), nullptr}, {}, {});
  EXPECT_EQ(both.row_spreads, std::vector<std::uint8_t>(5));
}

TEST(PrepareBoth, RefusesWhatDoesNotFit) {
  const Shape shape{1, 64, 96};
  const auto expect = [&](const char* says, auto&& change, QuantizeOptions options = {}) {
    PlainTensor x(DType::float32, shape);
    x.fill(normal_values(1));
    Both both(Scheme::mxfp4, shape);
    PreparedOperand rows = both.side(both.rows), columns = both.side(both.columns);
    BothSpreads spreads;
    change(x, rows, columns, spreads);
    expect_failure<InvalidArgument>(
        says, [&] { prepare_both(x.buffer(), rows, columns, spreads, options, {}); });
  };
  using Side = PreparedOperand;
  const auto nothing = [](PlainTensor&, Side&, Side&, BothSpreads&) {};
  expect("prepare_both: columns has shape [1, 64, 96]; expected [1, 96, 64]",
         [](PlainTensor&, Side& rows, Side& columns, BothSpreads&) { columns = rows; });
  expect(
      "prepare_both: rows has scheme mxint8, which is not folded",
      [](PlainTensor&, Side& rows, Side&, BothSpreads&) { rows.source.scheme = Scheme::mxint8; });
  expect("prepare_both: rows has scheme mxfp4 and columns mxfp6_e2m3",
         [](PlainTensor&, Side&, Side& columns, BothSpreads&) {
           columns.source.scheme = Scheme::mxfp6_e2m3;
         });
  alignas(128) static std::uint8_t memory[1 << 15];
  expect("prepare_both: rows has form folded; expected source",
         [](PlainTensor&, Side& rows, Side&, BothSpreads&) {
           rows.form = PreparedForm::folded;
           rows.data = memory;
           rows.bytes = sizeof memory;
         });
  expect("spreads.rows overlaps x", [](PlainTensor& x, Side&, Side&, BothSpreads& spreads) {
    spreads.rows = x.bytes.data() + 9;
  });
  QuantizeOptions options;
  options.rounding = Rounding::stochastic;
  expect("prepare_both: stochastic rounding", nothing, options);
  options = {};
  options.hadamard.size = 32;
  expect("a Hadamard transform", nothing, options);
}

}  // namespace
}  // namespace mxkern
