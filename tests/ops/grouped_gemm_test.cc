// tests/ops/grouped_gemm_test.cc: grouped products on the CPU against sums in double precision, and
// what is refused.
#include "mxkern/grouped_gemm.h"

#include <limits>
#include <string>
#include <vector>

#include "tests/support/cpu_grouped_product.h"

namespace mxkern {
namespace {

using namespace test;

// Groups without rows, at the ends too, and rows without a group.
const std::vector<std::int32_t> ends = {0, 3, 3, 21, 22, 38, 38};

TEST(GroupedGemm, EverySchemeWithEveryKindOfRows) {
  std::uint64_t seed = 0;
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : all_dtypes) {
      const DType out = all_dtypes[++seed % 3];
      auto p = plain_product(dtype, {1, 41, 130}, scheme, 35, ends, out,
                             static_cast<std::int64_t>(seed % 2) * 3);
      p.alpha = -1.5f;
      p.add_factors_and_biases(all_dtypes[seed % 3], static_cast<std::int64_t>(seed % 2) * 5);
      expect_agrees(std::move(p), seed);
    }
    for (const Scheme left : all_schemes) {
      ++seed;
      expect_agrees(quantized_product(left, {1, 41, 99}, scheme, 18, ends, DType::float32,
                                      all_scale_layouts[seed % 2]),
                    seed);
    }
  }
}

TEST(GroupedGemm, ShapesThatHaveLittle) {
  expect_agrees(plain_product(DType::float32, {1, 5, 0}, Scheme::mxfp4, 7, {2, 4}, DType::float32),
                1);
  expect_agrees(plain_product(DType::float32, {1, 5, 64}, Scheme::mxfp4, 7, {}, DType::bfloat16),
                2);
  expect_agrees(plain_product(DType::float32, {1, 0, 64}, Scheme::mxfp4, 7, {0, 0}, DType::float32),
                3);
  expect_agrees(plain_product(DType::float32, {1, 5, 64}, Scheme::mxfp4, 0, {2, 4}, DType::float32),
                4);
  expect_agrees(
      plain_product(DType::float16, {1, 700, 64}, Scheme::nvfp4, 33, {600, 690}, DType::float32),
      5);
}

TEST(GroupedGemm, NanStaysInItsGroup) {
  auto p =
      plain_product(DType::float32, {1, 9, 64}, Scheme::mxfp8_e4m3, 6, {2, 5, 9}, DType::float32);
  p.fill(8);
  p.b.scale(1, 4, 0) = 0xFF;
  p.a.set(0, 7, 3, std::numeric_limits<float>::quiet_NaN());
  run(p);
  for (int row = 0; row < 9; ++row) {
    for (int column = 0; column < 6; ++column) {
      const bool is_nan = row == 7 || (row >= 2 && row < 5 && column == 4);
      EXPECT_EQ(std::isnan(p.out.value(0, row, column)), is_nan) << row << ", " << column;
    }
  }
}

TEST(GroupedGemm, TakesPreparedOperands) {
  expect_prepared_agrees(
      plain_product(DType::bfloat16, {1, 9, 64}, Scheme::mxfp4, 6, {2, 5}, DType::float32));
}

struct Refused : RefusedProduct {
  Refused()
      : RefusedProduct{
            plain_product(DType::float32, {1, 9, 64}, Scheme::mxfp4, 6, {2, 5}, DType::float32)} {}
};

TEST(GroupedGemm, RefusesWhatDoesNotFit) {
  {
    Refused r;
    r.p.ends = {5, 2};
    r.expect("ends[1] is 2; expected 5 to 9");
  }
  {
    Refused r;
    r.p.ends = {2, 10};
    r.expect("ends[1] is 10; expected 2 to 9");
  }
  {
    Refused r;
    r.p.ends = {-1, 2};
    r.expect("ends[0] is -1; expected 0 to 9");
  }
  {
    Refused r;
    r.groups.count = 3;
    r.expect("there are 3 ends and b has 2 matrices");
  }
  {
    Refused r;
    r.groups.ends = nullptr;
    r.expect("groups.ends is null");
  }
  {
    Refused r;
    std::get<Buffer>(r.a).shape.batch = 2;
    std::get<Buffer>(r.a).batch_stride = 0;
    r.expect("a has a batch of 2");
  }
  {
    Refused r;
    std::get<Buffer>(r.a).shape.columns = 32;
    r.expect("a has K = 32 and b has K = 64");
  }
  {
    Refused r;
    r.out.shape.columns = 5;
    r.expect("out has shape [1, 9, 5]");
  }
  {
    Refused r;
    Buffer bias = r.out;
    r.options.bias = &bias;
    r.expect("bias has shape [1, 9, 6]");
  }
  {
    Refused r;
    r.groups.ends = static_cast<const std::int32_t*>(r.out.data);
    r.expect("out overlaps groups.ends");
  }
  {
    Refused r;
    const Buffer bias = Buffer::dense(r.out.data, DType::float32, {2, 1, 6});
    r.options.bias = &bias;
    r.expect("out overlaps bias");
  }
  {
    Refused r;
    r.out.data = r.b.codes;
    r.expect("out");
  }
  {
    Refused r;
    r.missing = 1;
    r.expect("ask grouped_gemm_workspace_bytes");
  }
  {
    Refused r;
    r.options.factors = reinterpret_cast<const float*>(r.out.data);
    r.expect("factors");
  }
  {
    Refused r;
    r.options.precision = GemmPrecision::automatic;
    r.expect("precision is auto; expected exact or folded");
  }
}

TEST(GroupedGemm, IsExactOnTheCpu) {
  Refused r;
  r.options.precision = GemmPrecision::folded;
  expect_failure<Unsupported>(
      "grouped_gemm: precision is folded, and the CPU's products are exact",
      [&] { grouped_gemm_workspace_bytes(r.a, r.b, r.groups, r.out, r.options); });
}

}  // namespace
}  // namespace mxkern
