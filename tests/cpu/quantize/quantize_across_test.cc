// tests/cpu/quantize/quantize_across_test.cc: columns in squares, written past the caches or not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "cpu/backend.h"
#include "mxkern/core/error.h"
#include "tests/support/compare_quantized.h"
#include "tests/support/kernel_tables.h"
#include "tests/support/reference_quantize.h"

namespace mxkern {
namespace {

using namespace test;

struct Output {
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> scales;
  bool operator==(const Output&) const = default;
};

// Quantizes the columns of x in squares, one below the other, strip by strip; codes begin `offset`
// bytes behind a line of the cache.
Output quantize_squares(Tensor& x, Scheme scheme, Rounding rounding, std::int64_t offset,
                        bool streams, const cpu::KernelTable& kernels) {
  constexpr std::int64_t cache_line = cpu::cache_line;
  constexpr std::int64_t most = cpu::AcrossMemory::most;
  const std::int64_t lines = x.shape().columns;
  const std::int64_t elements = x.shape().rows;
  const SchemeFacts facts = facts_of(scheme);
  const std::int64_t code_stride = round_up(code_row_bytes(scheme, elements) + 3, cache_line);
  const ScaleIndex index{lines, ceil_div(elements, facts.block), ScaleLayout::row_major};
  Output out{std::vector<std::uint8_t>(static_cast<std::size_t>((lines + 2) * code_stride), 0xCD),
             std::vector<std::uint8_t>(static_cast<std::size_t>(index.size()), 0xCD)};
  const auto address = reinterpret_cast<std::uintptr_t>(out.codes.data());
  std::uint8_t* const codes = out.codes.data() + round_up(address, cache_line) - address + offset;
  const Buffer buffer = x.buffer();
  cpu::AcrossMemory memory;
  const std::int64_t size = static_cast<std::int64_t>(size_of(x.dtype()));
  for (std::int64_t line = 0; line < lines; line += most) {
    for (std::int64_t e = 0; e < elements; e += most) {
      const bool is_last = e + most >= elements;
      kernels.quantize_across[static_cast<int>(scheme)][static_cast<int>(
          x.dtype())][static_cast<int>(rounding)](
          {.lines = {.x = static_cast<const std::byte*>(buffer.data) +
                          (e * buffer.row_stride + line) * size,
                     .x_stride = buffer.row_stride,
                     .random = nullptr,
                     .random_stride = 0,
                     .lines = std::min(most, lines - line),
                     .elements = std::min(most, elements - e),
                     .codes = codes + line * code_stride + e / facts.block * facts.block_bytes,
                     .code_stride = code_stride,
                     .scales = {out.scales.data(), index, line, e / facts.block},
                     .rule = ScaleRule::rceil,
                     .tensor = TensorScale::from_amax(3.0f),
                     .square = false,
                     .transposed = false,
                     .four_over_six = false,
                     .block_error = BlockError::mse,
                     .choice = nullptr,
                     .streams = false},
           .signs = nullptr,
           .random = {.seed = 5,
                      .offset = 2,
                      .index = static_cast<std::uint64_t>(e * lines + line),
                      .stride = lines},
           .memory = memory,
           .streams = streams,
           .is_last = is_last,
           .is_end = is_last && line + most >= lines,
           .is_near = false,
           .ahead = {}});
    }
  }
  // Wherever the allocator put them: only what lies around the codes may differ, and it must not.
  std::rotate(out.codes.begin(), out.codes.begin() + (codes - out.codes.data()), out.codes.end());
  return out;
}

void expect_same_bytes(Scheme scheme, DType dtype, Rounding rounding,
                       const cpu::KernelTable& kernels) {
  for (const std::int64_t elements : {7, 40, 128, 296, 512}) {
    Tensor x(dtype, {1, elements, elements % 128 == 0 ? 200 : 41}, 3);
    fill_mixed(x, static_cast<std::uint64_t>(elements));
    const Output wanted = quantize_squares(x, scheme, rounding, 0, false, kernels);
    for (const std::int64_t offset : {0, 16, 47, 63}) {
      for (const bool streams : {false, true}) {
        ASSERT_EQ(quantize_squares(x, scheme, rounding, offset, streams, kernels), wanted)
            << elements << " elements, offset " << offset << (streams ? ", streamed" : "");
      }
    }
  }
}

TEST(CpuQuantizeAcross, StreamedCodesAreTheSameBytes) {
  for (const cpu::InstructionSet set : available_instruction_sets()) {
    for (const Scheme scheme : all_schemes) {
      for (const DType dtype : all_dtypes) {
        for (const Rounding rounding : all_roundings) {
          SCOPED_TRACE(testing::Message() << cpu::name_of(set) << ", " << name_of(scheme) << ", "
                                          << name_of(dtype) << ", " << name_of(rounding));
          expect_same_bytes(scheme, dtype, rounding, cpu::kernels_for(set));
          if (testing::Test::HasFatalFailure()) return;
        }
      }
    }
  }
}

// The same, with scales in the other layout.
Quantized in_layout(const Quantized& from, ScaleLayout layout) {
  Quantized to(from.view.scheme, from.view.shape, layout);
  std::memcpy(to.codes.data(), from.codes.data(), static_cast<std::size_t>(to.codes.size()));
  std::memset(to.scales.data(), 0, static_cast<std::size_t>(to.scales.size()));
  to.tensor_scale = from.tensor_scale;
  const ScaleIndex old = from.view.scale_index(), index = to.view.scale_index();
  for (std::int64_t b = 0; b < to.view.shape.batch; ++b) {
    for (std::int64_t line = 0; line < to.view.shape.rows; ++line) {
      for (std::int64_t block = 0; block < index.blocks; ++block) {
        to.scales.data()[b * index.size() + index.offset(line, block)] =
            from.scales.data()[b * old.size() + old.offset(line, block)];
      }
    }
  }
  return to;
}

// In both scale layouts, beside rows and alone. Only columns are transformed.
void expect_reference(Scheme scheme, DType dtype, const Shape& shape,
                      QuantizeOptions column_options = {}) {
  Tensor x(dtype, shape);
  fill_mixed(x, 23);
  column_options.seed = 9;
  column_options.offset = 1;
  QuantizeOptions options = column_options;
  options.hadamard = {};
  constexpr ScaleLayout plain = ScaleLayout::row_major;
  const Quantized plain_rows = reference_quantize(x, false, scheme, plain, options);
  const Quantized plain_columns = reference_quantize(x, true, scheme, plain, column_options);
  for (const ScaleLayout layout : all_scale_layouts) {
    const Quantized rows = in_layout(plain_rows, layout);
    const Quantized columns = in_layout(plain_columns, layout);
    for (const cpu::InstructionSet set : available_instruction_sets()) {
      Quantized alone(scheme, x.shape().transposed(), layout);
      cpu::quantize(x.buffer(), nullptr, {}, &alone.out(), column_options, cpu::kernels_for(set));
      EXPECT_TRUE(same_bytes(alone, columns)) << "columns, " << cpu::name_of(set);
    }
    Quantized rows_alone(scheme, x.shape(), layout);
    cpu::quantize(x.buffer(), &rows_alone.out(), options, nullptr, {});
    EXPECT_TRUE(same_bytes(rows_alone, rows)) << "rows";
    Quantized both_rows(scheme, x.shape(), layout);
    Quantized both_columns(scheme, x.shape().transposed(), layout);
    cpu::quantize(x.buffer(), &both_rows.out(), options, &both_columns.out(), column_options);
    EXPECT_TRUE(same_bytes(both_rows, rows)) << "rows of both";
    EXPECT_TRUE(same_bytes(both_columns, columns)) << "columns of both";
  }
}

// Enough codes to be written past the caches. Read once for each direction, as codes have 8 bits.
TEST(CpuQuantizeAcross, ManyCodesGiveTheBytesOfTheReference) {
  expect_reference(Scheme::mxfp8_e4m3, DType::bfloat16, {1, 4096, 2085});
}

// The same; rows of whole blocks are one line then.
TEST(CpuQuantizeAcross, ManyCodesOfWholeBlocksGiveTheBytesOfTheReference) {
  expect_reference(Scheme::mxint8, DType::float32, {2, 2048, 2112});
}

// The same, as rows are longer than a band.
TEST(CpuQuantizeAcross, LongRowsGiveTheBytesOfTheReference) {
  expect_reference(Scheme::mxfp6_e3m2, DType::float32, {1, 1366, 8200});
}

// Read once for both.
TEST(CpuQuantizeAcross, BandsGiveTheBytesOfTheReference) {
  expect_reference(Scheme::mxfp6_e2m3, DType::float32, {1, 3000, 3800});
}

// Random words go by the place in the tensor, of which a batch is a part.
TEST(CpuQuantizeAcross, RoundedStochasticallyGivesTheBytesOfTheReference) {
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : all_dtypes) {
      SCOPED_TRACE(testing::Message() << name_of(scheme) << ", " << name_of(dtype));
      expect_reference(scheme, dtype, {3, 299, 421}, {.rounding = Rounding::stochastic});
    }
  }
  expect_reference(Scheme::mxfp4, DType::float32, {1, 3000, 3800},
                   {.rounding = Rounding::stochastic});
  expect_reference(Scheme::mxfp8_e5m2, DType::bfloat16, {1, 4096, 2085},
                   {.rounding = Rounding::stochastic});
}

// Squares at the edges have fewer lines, fewer elements, or both.
TEST(CpuQuantizeAcross, SquaresGiveTheBytesOfTheReference) {
  constexpr BlockShape square = BlockShape::square;
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : all_dtypes) {
      SCOPED_TRACE(testing::Message() << name_of(scheme) << ", " << name_of(dtype));
      for (const Rounding rounding : all_roundings) {
        expect_reference(scheme, dtype, {2, 333, 299},
                         {.rounding = rounding, .block_shape = square});
        expect_reference(scheme, dtype, {1, 7, 1050},
                         {.rounding = rounding, .block_shape = square});
      }
      if (testing::Test::HasFailure()) return;
    }
  }
  expect_reference(Scheme::mxfp8_e4m3, DType::bfloat16, {1, 4096, 2112}, {.block_shape = square});
  expect_reference(Scheme::mxfp6_e2m3, DType::float32, {1, 3000, 3800}, {.block_shape = square});
}

TEST(CpuQuantizeAcross, FourOverSixGivesTheBytesOfTheReference) {
  for (const DType dtype : all_dtypes) {
    for (const BlockError error : all_block_errors) {
      for (const int size : {0, 16, 64}) {
        for (const Rounding rounding : all_roundings) {
          SCOPED_TRACE(testing::Message() << name_of(dtype) << ", " << name_of(error) << ", "
                                          << size << ", " << name_of(rounding));
          expect_reference(Scheme::nvfp4, dtype, {2, size == 0 ? 173 : 192, 157},
                           {.rounding = rounding,
                            .four_over_six = true,
                            .block_error = error,
                            .hadamard = {size}});
        }
      }
    }
    if (testing::Test::HasFailure()) return;
  }
}

// Groups of 16 and 32 are transformed as they lie, larger ones in lines. Columns that do not fill a
// register, and rows that end within a block or a task.
TEST(CpuQuantizeAcross, TransformedGivesTheBytesOfTheReference) {
  const Hadamard transforms[] = {{16, SignMask{0x8E31, 0}}, {32, default_sign_mask}, {64}};
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : all_dtypes) {
      for (const Hadamard& hadamard : transforms) {
        SCOPED_TRACE(testing::Message()
                     << name_of(scheme) << ", " << name_of(dtype) << ", " << hadamard.size);
        for (const Rounding rounding : all_roundings) {
          expect_reference(scheme, dtype, {2, hadamard.size * 5, 157},
                           {.rounding = rounding, .hadamard = hadamard});
        }
        if (testing::Test::HasFailure()) return;
      }
    }
  }
  expect_reference(Scheme::mxfp8_e4m3, DType::bfloat16, {1, 4096, 2112}, {.hadamard = {16}});
}

}  // namespace
}  // namespace mxkern
