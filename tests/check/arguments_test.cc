// tests/check/arguments_test.cc: shapes, strides and addresses that no operation takes.
#include "check/arguments.h"

#include <gtest/gtest.h>

#include <iterator>
#include <limits>
#include <locale>
#include <string>
#include <utility>

#include "mxkern/dequantize.h"
#include "mxkern/quantize.h"
#include "tests/support/error_message.h"

namespace mxkern {
namespace {

using test::error_message;

const std::string nothing = "(nothing was thrown)";

constexpr std::int64_t huge = std::numeric_limits<std::int64_t>::max();

bool shape_is_taken(const Shape& shape) {
  const std::string message = error_message([&] { check_shape("f", "x", shape); });
  EXPECT_TRUE(message == nothing || message.starts_with("f: x has shape [")) << message;
  return message == nothing;
}

TEST(Check, ShapesWhoseBytesCanBeCounted) {
  for (const Shape& shape :
       {Shape{0, 0, 0}, Shape{1, 1, 1}, Shape{0, std::int64_t{1} << 40, 5},
        Shape{std::int64_t{1} << 45, 1, 1}, Shape{1, 1, std::int64_t{1} << 52}}) {
    ASSERT_TRUE(shape_is_taken(shape));
    for (const ScaleLayout layout : all_scale_layouts) {
      const auto sizes = BlockScaled::sizes(Scheme::nvfp4, shape, layout);
      EXPECT_GE(sizes.codes, 0);
      EXPECT_GE(sizes.scales, 0);
    }
  }
  // The last two overflow in the padding of scales, and in a stride of an empty tensor.
  for (const Shape& shape :
       {Shape{-1, 1, 1}, Shape{1, -1, 1}, Shape{1, 1, -1}, Shape{1, 1, huge}, Shape{huge, huge, 1},
        Shape{std::int64_t{1} << 55, 1, 1}, Shape{0, std::int64_t{1} << 40, huge}}) {
    EXPECT_FALSE(shape_is_taken(shape));
  }
}

TEST(Check, StridesThatReachBeyondMemory) {
  alignas(8) float x[8] = {};
  Buffer buffer = Buffer::dense(x, DType::float32, {2, 2, 2});
  EXPECT_EQ(error_message([&] { check_buffer("f", "x", buffer); }), nothing);
  buffer.row_stride = huge;
  EXPECT_NE(error_message([&] { check_buffer("f", "x", buffer); }).find("f: x has strides of"),
            std::string::npos);
  buffer.row_stride = 2;
  buffer.batch_stride = huge / 2;
  EXPECT_NE(error_message([&] { check_buffer("f", "x", buffer); }).find("f: x has strides of"),
            std::string::npos);
  buffer.shape.batch = 1;  // then its stride says nothing
  EXPECT_EQ(error_message([&] { check_buffer("f", "x", buffer); }), nothing);
}

TEST(Check, StridesOfASingleRowOrMatrix) {
  const auto strides = [](const Shape& shape) {
    const Buffer x = with_strides({nullptr, DType::float32, shape, huge, huge, {}});
    return std::pair(x.row_stride, x.batch_stride);
  };
  EXPECT_EQ(strides({1, 1, 5}), std::pair(std::int64_t{5}, std::int64_t{5}));
  EXPECT_EQ(strides({3, 1, 5}), std::pair(huge, huge));
  EXPECT_TRUE(is_one_matrix(with_strides({nullptr, DType::float32, {3, 1, 5}, 5, 80, {}})));
  for (const std::int64_t batch_stride : {0, 4}) {  // rows that overlap stay matrices
    const Buffer x = with_strides({nullptr, DType::float32, {3, 1, 5}, huge, batch_stride, {}});
    EXPECT_EQ(x.row_stride, 5);
    EXPECT_FALSE(is_one_matrix(x));
  }
  EXPECT_EQ(with_strides({nullptr, DType::float32, {1, 4, 5}, 8, huge, {}}).batch_stride, 32);
  const Buffer known{nullptr, DType::float32, {3, 4, 5}, 8, 40, {}};
  EXPECT_EQ(with_strides(known).row_stride, 8);
  EXPECT_EQ(with_strides(known).batch_stride, 40);
}

TEST(Check, ARowStrideOfZeroIsForASingleRow) {
  float values[8] = {};
  Buffer x{values, DType::float32, {1, 2, 4}, 0, 0, {}};
  EXPECT_EQ(error_message([&] { check_buffer("f", "x", x); }),
            "f: x has a row stride of 0 elements; expected at least its 4 columns");
  x.shape.rows = 1;  // then its stride says nothing
  EXPECT_EQ(error_message([&] { check_buffer("f", "x", x); }), nothing);
}

TEST(Check, MemoryThatIsOnlyRead) {
  const float values[4] = {};
  const Buffer x = Buffer::dense(values, DType::float32, {1, 1, 4});
  EXPECT_EQ(error_message([&] { check_buffer("f", "x", x); }), nothing);
  EXPECT_EQ(error_message([&] { check_output("f", "out", x); }),
            "f: out is a view of memory that is only read; expected one of memory to write to");
  EXPECT_EQ(Buffer::dense(nullptr, DType::float32, {1, 1, 4}).data, nullptr);
}

TEST(Check, CodesAndScalesThatAreOnlyRead) {
  const float one = 1.0f;
  const std::uint8_t codes[16] = {0x22}, scales[2] = {0x38, 0x38};
  const BlockScaled q =
      BlockScaled::of(Scheme::nvfp4, {1, 1, 32}, ScaleLayout::row_major, codes, scales, &one);
  float values[32] = {};
  EXPECT_EQ(error_message([&] { dequantize(q, Buffer::dense(values, DType::float32, q.shape)); }),
            nothing);
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(error_message([&] { quantize(Buffer::dense(values, DType::float32, q.shape), q); }),
            "quantize: out is a view of memory that is only read; expected one of memory to write "
            "to");
}

TEST(Check, ATensorScaleWhereThereIsNone) {
  const float one = 1.0f;
  const std::uint8_t codes[16] = {}, scales[1] = {127};
  const BlockScaled q =
      BlockScaled::of(Scheme::mxfp4, {1, 1, 32}, ScaleLayout::row_major, codes, scales, &one);
  EXPECT_EQ(error_message([&] { check_block_scaled("f", "q", q); }),
            "f: q.tensor_scale is given, and mxfp4 has none; expected null");
}

// Whoever refuses a shape gets it without an overflow on the way.
constexpr Shape of_many{1, std::int64_t{1} << 40, std::int64_t{3} << 40};
static_assert(!of_many.is_countable() && of_many.size() == 0);
static_assert(Buffer::dense(nullptr, DType::float32, of_many).batch_stride == 0);

TEST(Check, SizesOfShapesThatNoOperationTakes) {
  const std::string limit =
      "]; expected fewer than 2^60 elements, with rows and columns padded to 128 and 0 counted as "
      "1";
  const struct {
    Shape shape;
    std::string text;
  } cases[] = {
      {{1, std::int64_t{1} << 33, std::int64_t{1} << 33}, "1, 8589934592, 8589934592" + limit},
      {{1, -1, 32}, "1, -1, 32]; expected no negative extent"},
      {{huge, 1, 1}, concatenate(huge, ", 1, 1", limit)}};
  for (const auto& one : cases) {
    EXPECT_EQ(error_message(
                  [&] { BlockScaled::sizes(Scheme::mxfp4, one.shape, ScaleLayout::row_major); }),
              "BlockScaled::sizes: shape is [" + one.text);
  }
}

TEST(Check, NumbersThatNoEnumerationHas) {
  EXPECT_TRUE(is_listed(Scheme::nvfp4, all_schemes));
  EXPECT_FALSE(is_listed(static_cast<Scheme>(std::size(all_schemes)), all_schemes));
  EXPECT_EQ(error_message([] {
              check_device("f", {static_cast<DeviceType>(2), 0});
            }),
            "f: device type number 2; expected cpu or cuda");
}

TEST(Check, MisalignedPointers) {
  alignas(8) std::uint8_t bytes[64] = {};
  EXPECT_EQ(error_message([&] {
              check_buffer("f", "x", Buffer::dense(bytes + 2, DType::float32, {1, 1, 4}));
            }),
            "f: x is misaligned; expected an address that is a multiple of 4 bytes");
  EXPECT_EQ(error_message([&] {
              check_buffer("f", "x", Buffer::dense(bytes + 2, DType::float16, {1, 1, 4}));
            }),
            nothing);
  const BlockScaled q{.scheme = Scheme::nvfp4,
                      .shape = {1, 1, 16},
                      .codes = bytes,
                      .scales = bytes + 8,
                      .tensor_scale = reinterpret_cast<float*>(bytes + 9),
                      .device = {}};
  EXPECT_EQ(error_message([&] { check_block_scaled("f", "q", q); }),
            "f: q.tensor_scale is misaligned; expected an address that is a multiple of 4 bytes");
}

TEST(Check, StridesOfNothing) {
  Buffer none = Buffer::dense(nullptr, DType::float32, {1, 300, 0});
  none.row_stride = none.batch_stride = huge / 2;
  EXPECT_EQ(error_message([&] { check_buffer("f", "x", none); }), nothing);
  EXPECT_TRUE(is_dense(with_strides(none)));
}

TEST(Check, DevicesThatAreNone) {
  const Device odd{static_cast<DeviceType>(77), 0};
  const auto message = [](Device device, Device wanted) {
    return error_message([&] { check_same_device("f", "x", device, wanted); });
  };
  const std::string expected = "f: device type number 77; expected cpu or cuda";
  EXPECT_EQ(message(odd, Device{}), expected);
  EXPECT_EQ(message(Device{}, odd), expected);
}

// Digits in groups of three would read as more extents.
TEST(Check, MessagesInAProgramWithALocale) {
  struct Thousands : std::numpunct<char> {
    char do_thousands_sep() const override { return ','; }
    std::string do_grouping() const override { return "\3"; }
  };
  const std::locale before = std::locale::global(std::locale(std::locale(), new Thousands));
  const std::string message = error_message([] { check_shape("f", "x", {1, -12345, 64}); });
  std::locale::global(before);
  EXPECT_TRUE(message.starts_with("f: x has shape [1, -12345, 64]; ")) << message;
}

TEST(Check, TheLastCountableShapes) {
  constexpr std::int64_t one = 1;
  EXPECT_TRUE((Shape{(one << 46) - 1, 1, 1}).is_countable());
  EXPECT_FALSE((Shape{one << 46, 1, 1}).is_countable());
  EXPECT_FALSE((Shape{1, one << 53, 1}).is_countable());
  EXPECT_TRUE((Shape{1, (one << 53) - 128, 1}).is_countable());
  EXPECT_FALSE((Shape{0, one << 30, one << 30}).is_countable()) << "0 counts as 1";
  EXPECT_FALSE((Shape{one << 40, 0, one << 30}).is_countable());
  EXPECT_FALSE((Shape{one << 40, one << 30, 0}).is_countable());
}

TEST(Check, NegativeBatches) {
  EXPECT_FALSE((Shape{-1, 1, 32}).is_countable());
  EXPECT_EQ(error_message([&] {
              BlockScaled::sizes(Scheme::mxfp4, {-1, 1, 32}, ScaleLayout::row_major);
            }),
            "BlockScaled::sizes: shape is [-1, 1, 32]; expected no negative extent");
  float values[64] = {};
  const Buffer x{values + 32, DType::float32, {2, 1, 16}, 16, -16, {}};
  EXPECT_EQ(error_message([&] { check_buffer("f", "x", x); }),
            "f: x has a batch stride of -16 elements; expected none below zero");
}

TEST(Check, DevicesOfTheCpuHaveNumbers) {
  EXPECT_EQ(error_message([] {
              check_same_device("f", "x", {DeviceType::cpu, 1}, {});
            }),
            "f: x is on cpu:1; expected cpu, where the other arguments are");
}

}  // namespace
}  // namespace mxkern
