// tests/ops/grouped_rows_test.cc: grouped products on the CPU whose rows copy rows of a, against
// products of rows that are copied ahead, and what is refused.
#include <string>
#include <vector>

#include "mxkern/core/error.h"
#include "mxkern/grouped_gemm.h"
#include "tests/support/error_message.h"
#include "tests/support/grouped_product.h"

namespace mxkern {
namespace {

using namespace test;

const std::vector<std::int32_t> ends = {0, 3, 3, 21, 22, 36, 36};

// The last ones belong to no group: what they are does not count.
std::vector<std::int32_t> rows_of(std::int64_t tokens) {
  std::vector<std::int32_t> rows;
  for (std::int64_t i = 0; i < 36; ++i) {
    rows.push_back(static_cast<std::int32_t>(i % 7 == 3 ? -1 : i * 5 % tokens));
  }
  rows.insert(rows.end(), {99999, -7});
  return rows;
}

void run(const GemmOperand& a, const BlockScaled& b, PlainTensor& out,
         const GroupedGemmOptions& options) {
  const RowGroups groups{ends.data(), 7};
  const AlignedMemory memory(grouped_gemm_workspace_bytes(a, b, groups, out.buffer(), options));
  grouped_gemm(a, b, groups, out.buffer(), options, memory.workspace());
}

template <class Left>
void expect_same(Left& tokens, Left& copies, Scheme scheme, DType out_dtype) {
  QuantizedOperand b(scheme, {7, 35, tokens.view.shape.columns}, ScaleLayout::row_major);
  b.quantize(normal_values(2));
  PlainTensor got(out_dtype, {1, 38, 35}, 3), wanted = got;
  const std::vector<std::int32_t> rows = rows_of(tokens.view.shape.rows);
  GroupedGemmOptions options;
  run(copies.operand(), b.quantized(), wanted, options);
  options.rows = rows.data();
  run(tokens.operand(), b.quantized(), got, options);
  ASSERT_EQ(got.bytes, wanted.bytes) << name_of(scheme);
}

TEST(GroupedRows, PlainRowsAreThoseOfCopies) {
  for (const DType dtype : all_dtypes) {
    PlainTensor tokens(dtype, {1, 11, 130}, 5), copies(dtype, {1, 38, 130});
    tokens.fill(normal_values(1));
    const auto rows = rows_of(11);
    copies.fill([&](std::int64_t, std::int64_t row, std::int64_t k) {
      const std::int64_t from = rows[static_cast<std::size_t>(row)];
      return from < 0 || from > 10 ? 0.0 : tokens.value(0, from, k);
    });
    for (const Scheme scheme : all_schemes) expect_same(tokens, copies, scheme, dtype);
  }
}

TEST(GroupedRows, QuantizedRowsAreThoseOfCopies) {
  for (const Scheme left : all_schemes) {
    for (const ScaleLayout layout : all_scale_layouts) {
      const auto rows = rows_of(11);
      QuantizedOperand tokens(left, {1, 11, 99}, layout), copies(left, {1, 38, 99}, layout);
      tokens.quantize(normal_values(1));
      copies.tensor_scale = tokens.tensor_scale;
      for (std::int64_t i = 0; i < 36; ++i) {
        const std::int64_t from = rows[static_cast<std::size_t>(i)];
        for (std::int64_t k = 0; k < 99; ++k) {
          const int bits = facts_of(left).bits;
          copies.set_code(
              0, i, k,
              from < 0 ? 0 : get_code(tokens.codes, tokens.code_position(0, from, k), bits));
        }
        for (std::int64_t block = 0; block < tokens.view.scale_index().blocks; ++block) {
          copies.scale(0, i, block) = from < 0 ? std::uint8_t{0} : tokens.scale(0, from, block);
        }
      }
      expect_same(tokens, copies, Scheme::mxfp4, DType::float32);
    }
  }
}

struct Refused {
  PlainTensor a{DType::float32, {1, 4, 64}};
  QuantizedOperand b{Scheme::mxfp4, {2, 6, 64}, ScaleLayout::row_major};
  PlainTensor out{DType::float32, {1, 9, 6}};
  std::vector<std::int32_t> own_ends = {2, 7};
  std::vector<std::int32_t> rows = {0, 1, 2, 3, 0, 1, -1, 50, -50};
  GroupedGemmOptions options;
  std::size_t missing = 0;

  template <class Kinds = RowGroups>
  void expect(const std::string& says) {
    a.fill(normal_values(1));
    b.quantize(normal_values(2));
    if (options.rows == nullptr) options.rows = rows.data();
    const Kinds groups{own_ends.data(), 2};
    expect_failure<InvalidArgument>(says, [&] {
      const std::size_t bytes =
          grouped_gemm_workspace_bytes(a.operand(), b.quantized(), groups, out.buffer(), options);
      const AlignedMemory memory(bytes);
      grouped_gemm(a.operand(), b.quantized(), groups, out.buffer(), options,
                   {memory.workspace().data, bytes - missing});
    });
  }
};

TEST(GroupedRows, RefusesWhatDoesNotFit) {
  {
    Refused r;
    r.rows[5] = 4;
    r.expect("grouped_gemm: rows[5] is 4; expected 0 to 3, as a has 4 rows, or -1");
  }
  {
    Refused r;
    r.rows[0] = -2;
    r.expect("grouped_gemm: rows[0] is -2");
  }
  {
    Refused r;
    r.own_ends = {2, 10};
    r.expect("grouped_gemm: ends[1] is 10; expected 2 to 9");
  }
  {
    Refused r;
    r.options.rows = static_cast<const std::int32_t*>(r.out.buffer().data);
    r.expect("grouped_gemm: out overlaps rows");
  }
  {
    Refused r;
    r.missing = 1;
    r.expect("ask grouped_gemm_workspace_bytes");
  }
  Refused{}.expect<ColumnGroups>("grouped_gemm: rows is given, and columns belong to the groups");
}

TEST(GroupedRows, ThePlanSaysThatRowsAreCopied) {
  Refused r;
  r.options.rows = r.rows.data();
  const RowGroups groups{r.own_ends.data(), 2};
  const GemmExplanation text =
      explain_grouped_gemm(r.a.operand(), r.b.quantized(), groups, r.out.buffer(), r.options);
  EXPECT_EQ(text.left, "float32, read as it lies, rows copied in the call");
  EXPECT_GE(grouped_gemm_workspace_bytes(r.a.operand(), r.b.quantized(), groups, r.out.buffer(),
                                         r.options),
            text.workspace_bytes);
}

}  // namespace
}  // namespace mxkern
