// tests/cpu/quantize/streamed_lines_test.cc: lines written past the caches are the bytes of those
// that are not.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "cpu/kernel_table.h"
#include "tests/support/compare_quantized.h"
#include "tests/support/kernel_tables.h"
#include "tests/support/random_bits.h"

namespace mxkern {
namespace {

using namespace test;

constexpr std::int64_t lines = 3, cache_line = cpu::cache_line;
// Whole chunks, parts of them, and less than one.
constexpr std::int64_t lengths[] = {40, 1024, 1031, 2500, 4096};

// Memory around lines that begin `offset` bytes behind a line of the cache.
struct Around {
  std::vector<std::uint8_t> bytes;
  std::uint8_t* begin;

  Around(std::int64_t size, std::int64_t offset)
      : bytes(static_cast<std::size_t>(size + 3 * cache_line), 0xCD) {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
    begin = bytes.data() + round_up(address, cache_line) - address + cache_line + offset;
  }
  // Wherever the allocator put it: what lies around the lines too.
  std::vector<std::uint8_t> from_begin() const {
    std::vector<std::uint8_t> turned = bytes;
    std::rotate(turned.begin(), turned.begin() + (begin - bytes.data()), turned.end());
    return turned;
  }
};

TEST(CpuStreamedLines, Dequantized) {
  RandomBits random(1);
  for (const Scheme scheme : all_schemes) {
    for (const std::int64_t elements : lengths) {
      Quantized q(scheme, {1, lines, elements}, ScaleLayout::swizzled);
      for (std::int64_t i = 0; i < q.codes.size(); ++i)
        q.codes.data()[i] = static_cast<std::uint8_t>(random.next());
      // Of blocks whose values are exact, and of others.
      for (std::int64_t i = 0; i < q.scales.size(); ++i)
        q.scales.data()[i] = static_cast<std::uint8_t>(random.between(i % 7 == 0 ? 0 : 100, 200));
      for (const DType dtype : all_dtypes) {
        const auto size = static_cast<std::int64_t>(size_of(dtype));
        for (const cpu::InstructionSet set : available_instruction_sets()) {
          const auto run = [&](std::int64_t offset, bool streams) {
            Around out((lines * elements + 9) * size, offset);
            cpu::kernels_for(set).dequantize[static_cast<int>(scheme)][static_cast<int>(dtype)](
                {.codes = q.codes.data(),
                 .code_stride = code_row_bytes(scheme, elements),
                 .scales = {q.scales.data(), q.view.scale_index(), 0, 0},
                 .tensor_scale = 0.375f,
                 .lines = lines,
                 .elements = elements,
                 .out = out.begin,
                 .out_stride = elements + 3,
                 .streams = streams});
            return out.from_begin();
          };
          const std::vector<std::uint8_t> wanted = run(0, false);
          for (const std::int64_t offset : {0, 1, 8, 15}) {
            ASSERT_TRUE(run(offset * size, true) == wanted)
                << cpu::name_of(set) << ", " << name_of(scheme) << " to " << name_of(dtype) << ", "
                << elements << " elements, offset " << offset;
          }
        }
      }
    }
  }
}

TEST(CpuStreamedLines, Quantized) {
  for (const Scheme scheme : all_schemes) {
    for (const std::int64_t elements : lengths) {
      for (const DType dtype : all_dtypes) {
        Tensor x(dtype, {1, lines, elements}, 3);
        fill_mixed(x, static_cast<std::uint64_t>(elements));
        const Buffer buffer = x.buffer();
        const std::int64_t code_stride = code_row_bytes(scheme, elements) + 5;
        const ScaleIndex index{lines, ceil_div(elements, facts_of(scheme).block),
                               ScaleLayout::row_major};
        for (const cpu::InstructionSet set : available_instruction_sets()) {
          const auto run = [&](std::int64_t offset, bool streams) {
            Around codes(lines * code_stride, offset);
            std::vector<std::uint8_t> scales(static_cast<std::size_t>(index.size()), 0xCD);
            const auto kernel =
                cpu::kernels_for(set).quantize[static_cast<int>(scheme)][static_cast<int>(dtype)]
                                              [static_cast<int>(Rounding::nearest)];
            kernel({.x = buffer.data,
                    .x_stride = buffer.row_stride,
                    .random = nullptr,
                    .random_stride = 0,
                    .lines = lines,
                    .elements = elements,
                    .codes = codes.begin,
                    .code_stride = code_stride,
                    .scales = {scales.data(), index, 0, 0},
                    .rule = ScaleRule::rceil,
                    .tensor = TensorScale::from_amax(3.0f),
                    .square = false,
                    .transposed = false,
                    .four_over_six = false,
                    .block_error = BlockError::mse,
                    .choice = nullptr,
                    .streams = streams});
            std::vector<std::uint8_t> all = codes.from_begin();
            all.insert(all.end(), scales.begin(), scales.end());
            return all;
          };
          const std::vector<std::uint8_t> wanted = run(0, false);
          for (const std::int64_t offset : {0, 16, 47, 63}) {
            ASSERT_TRUE(run(offset, true) == wanted)
                << cpu::name_of(set) << ", " << name_of(scheme) << " of " << name_of(dtype) << ", "
                << elements << " elements, offset " << offset;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace mxkern
