// tests/ops/quantize_test.cc: what quantize promises, through its public entry.
#include "mxkern/quantize.h"

#include <gtest/gtest.h>

#include <cmath>

#include "mxkern/core/error.h"
#include "mxkern/dequantize.h"
#include "tests/support/compare_quantized.h"
#include "tests/support/error_message.h"
#include "tests/support/float_flags.h"
#include "tests/support/quantize_options.h"
#include "tests/support/reference_quantize.h"

namespace mxkern {
namespace {

using namespace test;

Quantized quantized(Tensor& x, Scheme scheme, const QuantizeOptions& options = {},
                    ScaleLayout layout = ScaleLayout::row_major) {
  Quantized q(scheme, x.shape(), layout);
  quantize(x.buffer(), q.out(), options);
  return q;
}

// The codes of one row, a byte each.
std::vector<std::uint8_t> codes_of_row(const Quantized& q, std::int64_t row) {
  const SchemeFacts facts = facts_of(q.view.scheme);
  const std::int64_t columns = q.view.shape.columns;
  const std::uint8_t* bytes = q.codes.data() + row * code_row_bytes(q.view.scheme, columns);
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(round_up(columns, facts.block)));
  const int count = static_cast<int>(facts.bits == 8 ? columns : round_up(columns, facts.block));
  if (facts.bits == 8) unpack<8>(bytes, count, codes.data());
  if (facts.bits == 6) unpack<6>(bytes, count, codes.data());
  if (facts.bits == 4) unpack<4>(bytes, count, codes.data());
  codes.resize(static_cast<std::size_t>(columns));
  return codes;
}

TEST(Quantize, ABlockOfE4M3ByHand) {
  Tensor x(DType::float32, {1, 1, 4});
  const float values[] = {1.0f, -448.0f, 0.3f, -0.0f};
  for (int i = 0; i < 4; ++i) x.set(0, 0, i, values[i]);
  const Quantized q = quantized(x, Scheme::mxfp8_e4m3);
  // The scale is 1; 0.3 lies between 0.28125 and 0.3125.
  EXPECT_EQ(q.scales.data()[0], 127);
  EXPECT_EQ(codes_of_row(q, 0), (std::vector<std::uint8_t>{0x38, 0xFE, 0x2A, 0x80}));
}

TEST(Quantize, ABlockOfNvfp4ByHand) {
  Tensor x(DType::float32, {1, 1, 4});
  const float values[] = {3.0f, -6.0f, 2688.0f, 1344.0f};
  for (int i = 0; i < 4; ++i) x.set(0, 0, i, values[i]);
  const Quantized q = quantized(x, Scheme::nvfp4);
  // amax 2688 = 6 * 448: the tensor scale is 1, the block scale 448.
  EXPECT_EQ(q.tensor_scale, 1.0f);
  EXPECT_EQ(q.scales.data()[0], 0x7E);
  EXPECT_EQ(codes_of_row(q, 0), (std::vector<std::uint8_t>{0x0, 0x8, 0x7, 0x5}));
}

TEST(Quantize, WhatIsNotFinitePoisonsItsBlockAlone) {
  for (const Scheme scheme : all_schemes) {
    const SchemeFacts facts = facts_of(scheme);
    const std::uint8_t poison =
        visit(scheme, [](auto type) { return decltype(type)::Format::poison_code; });
    for (const std::uint32_t bits : {0x7F800000u, 0xFF800000u, 0x7FC00000u, 0xFF800001u}) {
      Tensor x(DType::float32, {1, 1, 4 * facts.block - 3});
      x.for_each([&](auto b, auto r, auto c) { x.set(b, r, c, 1.0f); });
      const Quantized clean = quantized(x, scheme);
      x.set(0, 0, facts.block + 5, float_of(bits));
      x.set(0, 0, 4 * facts.block - 4, float_of(bits));
      const Quantized q = quantized(x, scheme);
      const auto codes = codes_of_row(q, 0);
      for (std::size_t i = 0; i < codes.size(); ++i) {
        const auto block = static_cast<int>(i) / facts.block;
        const bool poisoned = block == 1 || block == 3;
        EXPECT_EQ(q.scales.data()[block], poisoned ? facts.nan_scale : clean.scales.data()[block])
            << facts.name << ", block " << block;
        ASSERT_EQ(codes[i], poisoned ? poison : codes_of_row(clean, 0)[i])
            << facts.name << ", element " << i << ", " << show_bits(bits);
      }
    }
  }
}

TEST(Quantize, SquareBlocksTransposeLikeTheirTensor) {
  for (const Scheme scheme : all_schemes) {
    Tensor x(DType::bfloat16, {1, 70, 100});
    fill_mixed(x, 5);
    QuantizeOptions options;
    options.block_shape = BlockShape::square;
    const Quantized rows = quantized(x, scheme, options);
    Quantized columns(scheme, x.shape().transposed(), ScaleLayout::row_major);
    quantize_columns(x.buffer(), columns.out(), options);
    for (std::int64_t column = 0; column < 100; ++column) {
      const auto turned = codes_of_row(columns, column);
      for (std::int64_t row = 0; row < 70; ++row) {
        const auto code = codes_of_row(rows, row)[static_cast<std::size_t>(column)];
        ASSERT_EQ(code, turned[static_cast<std::size_t>(row)])
            << name_of(scheme) << " at row " << row << ", column " << column;
      }
    }
  }
}

TEST(Quantize, TheCallersFloatingPointSettingsChangeNothing) {
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : all_dtypes) {
      Tensor x(dtype, {1, 40, 96});
      x.for_each([&](auto b, auto r, auto c) {
        x.set(b, r, c, std::ldexp(1.0f + 0.01f * c, static_cast<int>(-90 - r - c % 7)));
      });
      const Quantized wanted = quantized(x, scheme);
      Tensor back(DType::float32, x.shape());
      Tensor back_wanted(DType::float32, x.shape());
      Quantized q(scheme, x.shape(), ScaleLayout::row_major);
      const float* tensor_scale =
          facts_of(scheme).has_tensor_scale ? &wanted.tensor_scale : nullptr;
      const BlockScaled view = BlockScaled::of(scheme, x.shape(), ScaleLayout::row_major,
                                               wanted.view.codes, wanted.view.scales, tensor_scale);
      dequantize(view, back_wanted.buffer());
      {
        const FlushedSubnormals flushed;
        quantize(x.buffer(), q.out());
        dequantize(view, back.buffer());
        EXPECT_TRUE(flushed.are_still_set()) << "the caller's settings were not restored";
      }
      EXPECT_TRUE(same_bytes(q, wanted)) << name_of(dtype);
      x.for_each([&](auto b, auto r, auto c) {
        ASSERT_EQ(back.bits(b, r, c), back_wanted.bits(b, r, c)) << name_of(scheme);
      });
    }
  }
}

TEST(Quantize, StochasticRoundingIsRightOnAverage) {
  for (const Scheme scheme : all_schemes) {
    // One row whose scale is fixed by its first element; draws differ by their offset.
    Tensor x(DType::float32, {1, 1, 16});
    const float top = facts_of(scheme).max_value;
    x.for_each([&](auto b, auto r, auto c) {
      x.set(b, r, c, c == 0 ? top : top * (0.013f + 0.047f * static_cast<float>(c)));
    });
    QuantizeOptions options;
    options.rounding = Rounding::stochastic;
    options.seed = 99;
    const float one = 1.0f;
    if (facts_of(scheme).has_tensor_scale) options.tensor_scale = &one;
    constexpr int draws = 4096;
    double sums[16] = {};
    double squares[16] = {};
    for (int draw = 0; draw < draws; ++draw) {
      options.offset = static_cast<std::uint64_t>(draw);
      Quantized q = quantized(x, scheme, options);
      Tensor back(DType::float32, x.shape());
      dequantize(q.out(), back.buffer());
      for (int c = 0; c < 16; ++c) {
        const double error = static_cast<double>(back.get(0, 0, c)) - x.get(0, 0, c);
        sums[c] += error;
        squares[c] += error * error;
      }
    }
    for (int c = 0; c < 16; ++c) {
      // Five standard errors of the mean; an exactly representable value never moves.
      const double limit = 5.0 * std::sqrt(squares[c] / draws) / std::sqrt(draws);
      EXPECT_LE(std::abs(sums[c] / draws), limit)
          << name_of(scheme) << ", element " << c << " = " << x.get(0, 0, c);
    }
  }
}

TEST(Quantize, TensorAmaxSkipsWhatIsNotFinite) {
  for (const DType dtype : all_dtypes) {
    for (const int columns : {0, 1, 31, 64, 257, 70000}) {
      Tensor x(dtype, {2, 3, columns}, 1);
      fill_mixed(x, static_cast<std::uint64_t>(columns));
      float wanted = 0.0f;
      x.for_each([&](auto b, auto r, auto c) {
        const float magnitude = std::abs(x.get(b, r, c));
        if (std::isfinite(magnitude) && magnitude > wanted) wanted = magnitude;
      });
      float amax = -1.0f;
      tensor_amax(x.buffer(), &amax);
      EXPECT_EQ(amax, wanted) << name_of(dtype) << " [2, 3, " << columns << "]";
    }
  }
}

TEST(Quantize, EmptyTensorsHaveATensorScaleAndNothingElse) {
  for (const Shape& shape : {Shape{0, 3, 32}, Shape{2, 0, 32}, Shape{2, 3, 0}}) {
    BlockScaled q;
    q.scheme = Scheme::nvfp4;
    q.shape = shape;
    float tensor_scale = -1.0f;
    q.tensor_scale = &tensor_scale;
    const Buffer x = Buffer::dense(static_cast<void*>(nullptr), DType::float32, shape);
    quantize(x, q);
    EXPECT_EQ(tensor_scale, 1.0f);
    const float amax = 26.88f;
    QuantizeOptions options;
    options.amax = &amax;
    quantize(x, q, options);
    EXPECT_EQ(tensor_scale, amax / 2688.0f);
  }
}

TEST(Quantize, RefusesWrongArguments) {
  Tensor x(DType::float32, {1, 4, 48});
  Quantized q(Scheme::mxfp4, x.shape(), ScaleLayout::row_major);
  const auto message = [&](auto&& change) {
    Buffer source = x.buffer();
    BlockScaled out = q.out();
    QuantizeOptions options;
    change(source, out, options);
    return error_message([&] { quantize(source, out, options); });
  };
  using B = Buffer;
  using Q = BlockScaled;
  using O = QuantizeOptions;
  EXPECT_EQ(message([](B& a, Q&, O&) { a.data = nullptr; }),
            "quantize: x has shape [1, 4, 48] but a null pointer; expected memory that holds it");
  EXPECT_EQ(message([](B& a, Q&, O&) { a.shape.rows = -1; }),
            "quantize: x has shape [1, -1, 48]; expected no negative extent");
  EXPECT_EQ(message([](B& a, Q&, O&) { a.row_stride = 47; }),
            "quantize: x has a row stride of 47 elements; expected at least its 48 columns");
  EXPECT_EQ(message([](B&, Q& b, O&) { b.shape.rows = 5; }),
            "quantize: out has shape [1, 5, 48]; expected [1, 4, 48]");
  EXPECT_EQ(message([](B&, Q& b, O&) { b.codes = nullptr; }),
            "quantize: out.codes is null; expected memory for 128 bytes");
  EXPECT_EQ(message([](B&, Q& b, O&) { b.scales = nullptr; }),
            "quantize: out.scales is null; expected memory for 8 bytes");
  EXPECT_EQ(message([](B&, Q& b, O&) { b.scheme = Scheme::nvfp4; }),
            "quantize: out.tensor_scale is null; expected a float32, which nvfp4 has");
  EXPECT_EQ(message([](B&, Q& b, O&) {
              b.device = {DeviceType::cuda, 1};
            }),
            "quantize: out is on cuda:1; expected cpu, where the other arguments are");
  EXPECT_EQ(message([](B&, Q&, O& c) { c.hadamard.size = 24; }),
            "quantize: a Hadamard transform of size 24; expected 16, 32, 64 or 128, or 0 for none");
  EXPECT_EQ(message([](B&, Q&, O& c) { c.hadamard.size = 32; }),
            "quantize: a Hadamard transform of size 32 along an axis of 48; expected a multiple of "
            "32");
  EXPECT_EQ(message([](B&, Q&, O& c) { c.four_over_six = true; }),
            "quantize: four_over_six is for nvfp4; mxfp4 has one scale for each rule");
  EXPECT_EQ(message([](B&, Q&, O& c) { c.block_error = BlockError::mae; }),
            "quantize: block_error is mae without four_over_six; set four_over_six, or leave "
            "block_error");
  EXPECT_EQ(message([](B&, Q&, O& c) { c.block_error = static_cast<BlockError>(2); }),
            "quantize: block error number 2; expected mse or mae");
  static const float one = 1.0f;
  EXPECT_EQ(message([](B&, Q&, O& c) { c.amax = &one; }),
            "quantize: amax and tensor_scale are for nvfp4; mxfp4 has no tensor scale");
  EXPECT_EQ(q.codes.data()[0], 0xCD) << "an error wrote to the codes";
}

TEST(Quantize, RefusesWrongTensorScales) {
  Tensor x(DType::float32, {1, 4, 48});
  Quantized q(Scheme::nvfp4, x.shape(), ScaleLayout::row_major);
  const auto message = [&](const float* amax, const float* tensor_scale) {
    QuantizeOptions options;
    options.amax = amax;
    options.tensor_scale = tensor_scale;
    return error_message([&] { quantize_columns(x.buffer(), q.out(), options); });
  };
  q.view.shape = x.shape().transposed();
  const float negative = -1.0f;
  const float infinite = float_of(float32::infinity_bits);
  const float nan = float_of(float32::nan_bits);
  EXPECT_EQ(message(&negative, nullptr),
            "quantize_columns: amax is -1; expected a finite number that is not negative");
  EXPECT_EQ(message(nullptr, &infinite),
            "quantize_columns: tensor_scale is inf; expected a finite number that is not negative");
  EXPECT_EQ(message(&nan, nullptr),
            "quantize_columns: amax is nan; expected a finite number that is not negative");
  const float one = 1.0f;
  QuantizeOptions floor;
  floor.scale_rule = ScaleRule::floor;
  EXPECT_EQ(error_message([&] { quantize_columns(x.buffer(), q.out(), floor); }),
            "quantize_columns: scale_rule is number 1, but nvfp4 has one rule of its own; leave "
            "scale_rule as it is");
  EXPECT_EQ(message(&one, &one),
            "quantize_columns: amax and tensor_scale are both given; expected at most one, each "
            "follows from the other");
}

TEST(Quantize, LeavesTheAmaxThatItFinds) {
  Tensor x(DType::float32, {1, 32, 48});
  fill_mixed(x, 11, false);
  float want = 0.0f, found = -1.0f, of_columns = -1.0f;
  tensor_amax(x.buffer(), &want);
  ASSERT_GT(want, 0.0f);
  Quantized q(Scheme::nvfp4, x.shape(), ScaleLayout::row_major);
  QuantizeOptions options;
  options.found_amax = &found;
  quantize(x.buffer(), q.out(), options);
  EXPECT_EQ(found, want);
  // Of the columns it is that of what the transform makes of them.
  Quantized columns(Scheme::nvfp4, x.shape().transposed(), ScaleLayout::row_major);
  QuantizeOptions transformed;
  transformed.hadamard.size = 16;
  transformed.found_amax = &of_columns;
  found = -1.0f;
  quantize_both(x.buffer(), q.out(), columns.out(), options, transformed);
  EXPECT_EQ(found, want);
  EXPECT_NE(of_columns, want);
  EXPECT_EQ(TensorScale::from_amax(of_columns).stored, columns.tensor_scale);
  // One that is given is not found.
  const float given = 3.0f;
  found = -1.0f;
  options.amax = &given;
  quantize(x.buffer(), q.out(), options);
  EXPECT_EQ(found, -1.0f);
}

TEST(Quantize, RefusesAPlaceForAnAmaxThatIsNotItsOwn) {
  Tensor x(DType::float32, {1, 32, 48});
  Quantized rows(Scheme::nvfp4, x.shape(), ScaleLayout::row_major);
  Quantized columns(Scheme::nvfp4, x.shape().transposed(), ScaleLayout::row_major);
  float found[2] = {};
  QuantizeOptions row_options, column_options;
  const auto message = [&](float* of_rows, float* of_columns) {
    row_options.found_amax = of_rows;
    column_options.found_amax = of_columns;
    return error_message(
        [&] { quantize_both(x.buffer(), rows.out(), columns.out(), row_options, column_options); });
  };
  const std::string fine = "(nothing was thrown)";
  EXPECT_EQ(message(found, found + 1), fine);
  EXPECT_EQ(message(found, found), fine);
  const std::string way_out = "; expected memory of its own; write to another buffer and copy it";
  EXPECT_EQ(message(found, static_cast<float*>(x.buffer().data)),
            "quantize_both: found_amax overlaps x" + way_out);
  EXPECT_EQ(message(rows.out().tensor_scale, nullptr),
            "quantize_both: found_amax overlaps rows.tensor_scale" + way_out);
  auto* const odd = reinterpret_cast<float*>(reinterpret_cast<std::uintptr_t>(found) + 1);
  EXPECT_EQ(
      message(odd, nullptr),
      "quantize_both: found_amax is misaligned; expected an address that is a multiple of 4 bytes");
  column_options.hadamard.size = 16;
  EXPECT_EQ(message(found, found + 1), fine);
  EXPECT_EQ(message(found, found),
            "quantize_both: found_amax is in one place for rows and columns, whose amaxes differ; "
            "expected a float32 for each");
}

TEST(Quantize, RefusesDirectionsThatDiffer) {
  Tensor x(DType::float32, {1, 32, 64});
  Quantized rows(Scheme::mxfp4, x.shape(), ScaleLayout::row_major);
  Quantized columns(Scheme::mxint8, x.shape().transposed(), ScaleLayout::row_major);
  EXPECT_EQ(error_message([&] { quantize_both(x.buffer(), rows.out(), columns.out()); }),
            "quantize_both: rows has scheme mxfp4, columns has mxint8; expected the same scheme");
  columns.view.scheme = Scheme::mxfp4;
  QuantizeOptions square;
  square.block_shape = BlockShape::square;
  EXPECT_EQ(
      error_message([&] { quantize_both(x.buffer(), rows.out(), columns.out(), {}, square); }),
      "quantize_both: the block shapes of rows and columns differ; expected the same for both");
}

#if !defined(MXKERN_HAS_CUDA)
TEST(Quantize, SaysThatItWasBuiltWithoutCuda) {
  Tensor x(DType::float32, {1, 1, 32});
  Quantized q(Scheme::mxfp4, x.shape(), ScaleLayout::row_major);
  Buffer source = x.buffer();
  BlockScaled out = q.out();
  source.device = out.device = {DeviceType::cuda, 0};
  EXPECT_THROW(quantize(source, out), Unsupported);
  EXPECT_EQ(error_message([&] { quantize(source, out); }),
            "quantize: the arguments are on cuda:0, but mxkern was built without CUDA; move them "
            "to the CPU, or build with MXKERN_CUDA=ON");
}
#endif

}  // namespace
}  // namespace mxkern
