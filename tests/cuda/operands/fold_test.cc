// tests/cuda/operands/fold_test.cc: folded rows against the arithmetic of one code, byte for byte.
#include "cuda/operands/fold.h"

#include <algorithm>
#include <vector>

#include "mxkern/mxkern.h"
#include "tests/support/cuda/memory.h"
#include "tests/support/cuda/folded_rows.h"
#include "tests/support/show.h"

namespace mxkern {
namespace {

using namespace test;

using CudaFold = CudaTest;

const Scheme folded_schemes[] = {Scheme::mxfp8_e4m3, Scheme::mxfp8_e5m2, Scheme::mxfp6_e3m2,
                                 Scheme::mxfp6_e2m3, Scheme::mxfp4};
// Rows that share a thread block, that fill one, and that come in pieces; ragged and empty ones.
const Shape shapes[] = {{1, 1, 1},    {1, 33, 31},       {2, 16, 64},   {3, 5, 129}, {1, 17, 100},
                        {2, 9, 4096}, {1, 3, 8192 + 40}, {1, 2, 20000}, {1, 0, 32},  {1, 5, 0}};

std::uint8_t code_of(const Quantized& q, std::int64_t row, std::int64_t column) {
  const int bits = facts_of(q.view.scheme).bits;
  const std::int64_t bit =
      row * code_row_bytes(q.view.scheme, q.view.shape.columns) * 8 + column * bits;
  std::uint8_t code = 0;
  for (int i = 0; i < bits; ++i) {
    const int value = q.codes.data()[(bit + i) / 8] >> ((bit + i) % 8) & 1;
    code = static_cast<std::uint8_t>(code | value << i);
  }
  return code;
}

// Every row against fold_code, its exponent and its spread.
template <class S>
void expect_folded(const Quantized& q, const Folded& folded) {
  using Format = typename S::Format;
  const Shape& shape = q.view.shape;
  const ScaleIndex index = q.view.scale_index();
  for (std::int64_t i = 0; i < shape.batch * shape.rows; ++i) {
    const std::int64_t batch = i / shape.rows, row = i % shape.rows;
    const std::uint8_t* scales = q.scales.data() + batch * index.size();
    int largest = 0, spread = 0;
    for (std::int64_t block = 0; block < index.blocks; ++block) {
      const int byte = scales[index.offset(row, block)];
      if (byte != E8M0::nan_byte) largest = std::max(largest, byte);
    }
    for (std::int64_t column = 0; column < shape.columns; ++column) {
      const int byte = scales[index.offset(row, column / S::block)];
      const std::uint8_t code = code_of(q, i, column);
      const bool is_poisoned = byte == E8M0::nan_byte;
      const int distance = largest - byte;
      const int want = is_poisoned ? Fold<Format>::Target::poison_code
                                   : fold_code<Format>(code, static_cast<unsigned>(distance));
      const int got = folded.code(batch, row, column);
      ASSERT_EQ(got, want) << S::name << " [" << shape.batch << ", " << shape.rows << ", "
                           << shape.columns << "] " << name_of(q.view.scale_layout) << " at "
                           << batch << ", " << row << ", " << column << ": code " << show_code(code)
                           << ", distance " << distance << ", got " << show_code(got) << ", want "
                           << show_code(want);
      if (!is_poisoned && (code & Format::magnitude_mask) != 0) spread = std::max(spread, distance);
    }
    ASSERT_EQ(folded.exponent(i), largest - E8M0::bias - Fold<Format>::base_shift) << "row " << i;
    ASSERT_EQ(folded.spread(i), spread) << "row " << i;
  }
}

void fold_and_compare(Quantized& q, bool misaligned) {
  q.out();
  Folded folded(q.view.shape);
  DeviceQuantized device_q(q, misaligned);
  folded.fill_on_device(
      [&](std::uint8_t* memory) { cuda::fold("fold", device_q.view(), memory, {}); });
  visit(q.view.scheme, [&]<class S>(S) {
    if constexpr (scheme_can_fold<S>) expect_folded<S>(q, folded);
  });
}

TEST_F(CudaFold, AnyCodesUnderAnyScales) {
  RandomBits random(1);
  for (const Scheme scheme : folded_schemes) {
    for (const ScaleLayout layout : all_scale_layouts) {
      for (const Shape& shape : shapes) {
        for (const int spread : {0, 9, 40, 254}) {
          Quantized q(scheme, shape, layout);
          fill(q, spread, random);
          fold_and_compare(q, random.between(0, 1) == 1);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Rows of 8-bit codes that warps take: one or several a row, one thread block a multiprocessor or
// many, chunks of a row that end inside.
TEST_F(CudaFold, RowsByWarps) {
  RandomBits random(2);
  const auto expect = [&](Scheme scheme, ScaleLayout layout, const Shape& shape) {
    for (const int spread : {2, 20}) {
      Quantized q(scheme, shape, layout);
      fill(q, spread, random);
      fold_and_compare(q, false);
    }
  };
  for (const Scheme scheme : {Scheme::mxfp8_e4m3, Scheme::mxfp8_e5m2}) {
    for (const ScaleLayout layout : all_scale_layouts) {
      for (const Shape& shape : {Shape{1, 1, 128},
                                 {1, 300, 640},
                                 {1, 140, 4096},
                                 {1, 1100, 1152},
                                 {1, 133, 4224},
                                 {1, 70, 12416},
                                 {1, 3, 140032},
                                 {1, 4300, 256}}) {
        expect(scheme, layout, shape);
        if (HasFatalFailure()) return;
      }
    }
  }
  expect(Scheme::mxfp8_e4m3, ScaleLayout::swizzled, {1, 2200, 4224});
}

// A row a distance: a block of zeros has the largest scale, eight others have all the codes.
TEST_F(CudaFold, EveryCodeAtEveryDistance) {
  for (const Scheme scheme : folded_schemes) {
    const SchemeFacts facts = facts_of(scheme);
    Quantized q(scheme, {1, 255, facts.block * 9}, ScaleLayout::row_major);
    const std::int64_t row_bytes = code_row_bytes(scheme, facts.block * 9);
    for (int row = 0; row < 255; ++row) {
      std::uint8_t* codes = q.codes.data() + row * row_bytes;
      std::fill_n(codes, facts.block_bytes, std::uint8_t{0});
      for (std::int64_t i = facts.block_bytes; i < row_bytes; ++i) {
        // Bytes that differ by an odd step pass through all the codes that they are packed of.
        codes[i] = static_cast<std::uint8_t>(facts.bits == 8 ? i : i * 37 + row);
      }
      std::uint8_t* scales = q.scales.data() + row * 9;
      std::fill_n(scales, 9, static_cast<std::uint8_t>(254 - row));
      scales[0] = 254;
    }
    fold_and_compare(q, false);
    if (HasFatalFailure()) return;
  }
}

void expect_same_as_two_steps(Tensor& x, Scheme scheme, ScaleRule rule, ScaleLayout layout,
                              bool misaligned, bool with_codes) {
  Quantized wanted_codes(scheme, x.shape(), layout), codes(scheme, x.shape(), layout);
  QuantizeOptions options;
  options.scale_rule = rule;
  quantize(x.buffer(), wanted_codes.out(), options);
  codes.out();
  Folded wanted(x.shape()), got(x.shape());
  DeviceQuantized device_wanted(wanted_codes), device_codes(codes, misaligned);
  DeviceTensor device_x(x, misaligned);
  wanted.fill_on_device(
      [&](std::uint8_t* memory) { cuda::fold("fold", device_wanted.view(), memory, {}); });
  got.fill_on_device([&](std::uint8_t* memory) {
    cuda::quantize_folded("quantize_folded", device_x.buffer(), scheme, rule, memory,
                          with_codes ? &device_codes.view() : nullptr, {});
  });
  const Shape& shape = x.shape();
  const auto where = concatenate(name_of(scheme), " of ", name_of(x.dtype()), " [", shape.batch,
                                 ", ", shape.rows, ", ", shape.columns, "], ", name_of(rule));
  x.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
    if (::testing::Test::HasFatalFailure()) return;
    ASSERT_EQ(show_code(got.code(b, r, c)), show_code(wanted.code(b, r, c)))
        << where << " at " << b << ", " << r << ", " << c << ", which is " << show(x.get(b, r, c));
  });
  for (std::int64_t i = 0; i < shape.batch * shape.rows; ++i) {
    ASSERT_EQ(got.exponent(i), wanted.exponent(i)) << where << ", row " << i;
    ASSERT_EQ(got.spread(i), wanted.spread(i)) << where << ", row " << i;
  }
  if (!with_codes) return;
  Quantized written = device_codes.on_host();
  ASSERT_TRUE(std::equal(written.codes.whole().begin(), written.codes.whole().end(),
                         wanted_codes.codes.whole().begin()))
      << where << ": codes";
  ASSERT_TRUE(std::equal(written.scales.whole().begin(), written.scales.whole().end(),
                         wanted_codes.scales.whole().begin()))
      << where << ": scales";
}

TEST_F(CudaFold, QuantizingAndFoldingAtOnceIsTheSameAsInTwoSteps) {
  int turn = 0;
  const Shape long_row{1, 2, 40000};  // beyond what threads hold
  for (const Scheme scheme : folded_schemes) {
    for (const DType dtype : all_dtypes) {
      for (const ScaleRule rule : all_scale_rules) {
        for (const Shape& shape : shapes) {
          ++turn;
          Tensor x(dtype, turn % 40 == 0 ? long_row : shape, turn % 3 == 0 ? 3 : 0);
          fill_mixed(x, static_cast<std::uint64_t>(turn));
          expect_same_as_two_steps(x, scheme, rule, all_scale_layouts[turn % 2], turn % 5 == 0,
                                   turn % 7 != 0);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Elements of 16 bits that warps hold: few and many rows, in one thread block a multiprocessor and
// in more of them, of one warp and of several, the last of which have few columns or none.
TEST_F(CudaFold, QuantizedRowsInWarps) {
  int turn = 0;
  for (const Shape& shape : {Shape{1, 1, 32},
                             {1, 140, 4096},
                             {1, 600, 4096},
                             {1, 1200, 3104},
                             {1, 5, 14336},
                             {1, 4300, 288},
                             {1, 2200, 2080},
                             {1, 600, 14368}}) {
    for (const DType dtype : {DType::bfloat16, DType::float16}) {
      for (const ScaleRule rule : all_scale_rules) {
        const bool is_large = shape.rows * shape.columns > 1'000'000;
        if (++turn % 3 != 0 && is_large) continue;
        Tensor x(dtype, shape, turn % 5 < 2 ? 8 : 0);
        fill_mixed(x, static_cast<std::uint64_t>(turn));
        expect_same_as_two_steps(x, Scheme::mxfp8_e4m3, rule, all_scale_layouts[turn % 2], false,
                                 turn % 7 < 4);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(CudaFold, SchemesThatDoNotFitAreRefused) {
  Quantized q(Scheme::nvfp4, {1, 16, 64}, ScaleLayout::row_major);
  q.out();
  DeviceQuantized device_q(q);
  DeviceBytes memory(static_cast<std::size_t>(cuda::folded_layout(q.view.shape).bytes));
  EXPECT_THROW(cuda::fold("fold", device_q.view(), memory.data(), {}), InvalidArgument);
}

}  // namespace
}  // namespace mxkern
