// tests/plan/blackwell_test.cc: which products go to Blackwell's block-scaled kernels, and what
// working memory they get. No device is asked.
#include "plan/blackwell.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "cuda/gemm/blackwell/product.h"

namespace mxkern::cuda {
namespace {

struct Operands {
  BlockScaled a, b;
  Buffer out;
};

std::uint8_t* at(std::uintptr_t address) { return reinterpret_cast<std::uint8_t*>(address); }

// A product that fits, unless the scheme's or the extents' rules say no.
Operands operands(Scheme left, Scheme right, Shape a, std::int64_t n,
                  DType dtype = DType::bfloat16) {
  Operands result;
  result.a = {.scheme = left,
              .shape = a,
              .scale_layout = ScaleLayout::swizzled,
              .codes = at(0x10000),
              .scales = at(0x20000),
              .tensor_scale = nullptr,
              .device = {}};
  result.b = result.a;
  result.b.scheme = right;
  result.b.shape.rows = n;
  result.out = Buffer::dense(at(0x30000), dtype, {a.batch, a.rows, n});
  return result;
}

bool takes(const Operands& o) { return why_not_blackwell(o.a, o.b, o.out) == nullptr; }

TEST(TakesBlackwell, Architectures) {
  EXPECT_EQ(blackwell_of(10, 0), Blackwell::sm100);
  EXPECT_EQ(blackwell_of(12, 0), Blackwell::sm120);
  // Code with architecture-specific instructions runs on nothing else of its family.
  const std::pair<int, int> others[] = {{8, 0}, {8, 9}, {9, 0}, {10, 3}, {11, 0}, {12, 1}};
  for (const auto& [major, minor] : others) {
    EXPECT_EQ(blackwell_of(major, minor), Blackwell::none) << major << "." << minor;
  }
}

TEST(TakesBlackwell, PairsOfSchemes) {
  using enum Scheme;
  const std::set<std::pair<Scheme, Scheme>> wanted = {
      {mxfp8_e4m3, mxfp8_e4m3}, {mxfp8_e4m3, mxfp8_e5m2}, {mxfp8_e4m3, mxfp6_e3m2},
      {mxfp8_e4m3, mxfp6_e2m3}, {mxfp8_e4m3, mxfp4},      {mxfp8_e5m2, mxfp8_e4m3},
      {mxfp8_e5m2, mxfp8_e5m2}, {mxfp8_e5m2, mxfp6_e3m2}, {mxfp8_e5m2, mxfp6_e2m3},
      {mxfp8_e5m2, mxfp4},      {mxfp4, mxfp4},           {nvfp4, nvfp4}};
  for (const Scheme left : all_schemes) {
    for (const Scheme right : all_schemes) {
      EXPECT_EQ(takes(operands(left, right, {1, 128, 256}, 128)), wanted.contains({left, right}))
          << name_of(left) << " with " << name_of(right);
    }
  }
}

TEST(TakesBlackwell, MultiplesOfK) {
  using enum Scheme;
  const struct {
    Scheme left, right;
    std::int64_t k;
    bool taken;
  } cases[] = {
      {mxfp8_e4m3, mxfp8_e5m2, 16, true},
      {mxfp8_e4m3, mxfp8_e4m3, 48, true},
      {mxfp8_e4m3, mxfp8_e4m3, 8, false},
      {mxfp8_e4m3, mxfp8_e4m3, 33, false},
      {mxfp8_e4m3, mxfp6_e2m3, 128, true},
      {mxfp8_e4m3, mxfp6_e2m3, 96, false},
      {mxfp8_e5m2, mxfp4, 384, true},
      {mxfp8_e5m2, mxfp4, 160, false},
      {mxfp4, mxfp4, 32, true},
      {mxfp4, mxfp4, 33, true},  // a row ends with zero codes
      {nvfp4, nvfp4, 32, true},
      {nvfp4, nvfp4, 48, false},
      {nvfp4, nvfp4, 63, true},
      {mxfp8_e4m3, mxfp8_e4m3, 0, false},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(takes(operands(c.left, c.right, {1, 128, c.k}, 128)), c.taken)
        << name_of(c.left) << " with " << name_of(c.right) << ", K = " << c.k;
  }
}

TEST(TakesBlackwell, AddressesAndStrides) {
  const auto with = [](Scheme right, auto change) {
    Operands o = operands(Scheme::mxfp8_e4m3, right, {1, 128, 256}, 128);
    change(o);
    return takes(o);
  };
  const Scheme wide = Scheme::mxfp8_e4m3, narrow = Scheme::mxfp4;
  EXPECT_TRUE(with(wide, [](Operands& o) { o.a.codes += 16; }));
  EXPECT_FALSE(with(wide, [](Operands& o) { o.a.codes += 8; }));
  EXPECT_TRUE(with(wide, [](Operands& o) { o.b.codes += 16; }));
  EXPECT_FALSE(with(narrow, [](Operands& o) { o.b.codes += 16; }));
  EXPECT_TRUE(with(narrow, [](Operands& o) { o.b.codes += 32; }));
  EXPECT_FALSE(with(wide, [](Operands& o) { o.a.scales += 4; }));
  EXPECT_FALSE(with(wide, [](Operands& o) { o.b.scales += 4; }));
  EXPECT_TRUE(with(wide, [](Operands& o) {  // they are copied
    o.b.scale_layout = ScaleLayout::row_major;
    o.b.scales += 1;
  }));
  EXPECT_FALSE(with(wide, [](Operands& o) { o.out.data = at(0x30008); }));
  EXPECT_FALSE(with(wide, [](Operands& o) { o.out.dtype = DType::float16; }));
}

TEST(TakesBlackwell, Outputs) {
  const auto of = [](std::int64_t m, std::int64_t n, std::int64_t row_stride, DType dtype) {
    Operands o = operands(Scheme::mxfp4, Scheme::mxfp4, {1, m, 256}, n, dtype);
    o.out.row_stride = row_stride;
    return takes(o);
  };
  EXPECT_TRUE(of(128, 8, 8, DType::bfloat16));
  EXPECT_FALSE(of(128, 4, 4, DType::bfloat16));
  EXPECT_TRUE(of(128, 4, 4, DType::float32));
  EXPECT_FALSE(of(128, 6, 6, DType::float32));
  EXPECT_TRUE(of(1, 8, 3, DType::bfloat16)) << "one row has no stride";
  // With gaps: small ones are left to others.
  EXPECT_FALSE(of(128, 128, 136, DType::bfloat16));
  EXPECT_TRUE(of(1024, 128, 136, DType::bfloat16));
  EXPECT_FALSE(of(1024, 128, 132, DType::bfloat16));
}

TEST(TakesBlackwell, Extents) {
  const auto of = [](Shape a, std::int64_t n) {
    return takes(operands(Scheme::mxfp8_e4m3, Scheme::mxfp8_e4m3, a, n));
  };
  EXPECT_FALSE(of({1, 0, 256}, 128));
  EXPECT_FALSE(of({1, 128, 256}, 0));
  EXPECT_FALSE(of({0, 128, 256}, 128));
  EXPECT_TRUE(of({1, 1, 16}, 8));
  EXPECT_TRUE(of({3, 100, 272}, 264));
  EXPECT_TRUE(of({1, std::int64_t{1} << 20, 32768}, 128)) << "2^30 scales";
  EXPECT_FALSE(of({2, std::int64_t{1} << 20, 32768}, 128)) << "2^31 scales";
}

TEST(TakesBlackwell, WorkspaceHoldsTheParts) {
  Operands o = operands(Scheme::mxfp8_e4m3, Scheme::mxfp8_e4m3, {2, 130, 160}, 200);
  const BlackwellWorkspace swizzled = blackwell_workspace(o.a, o.b);
  EXPECT_EQ(swizzled.factor, 0u);
  EXPECT_GE(swizzled.bias, sizeof(float));
  EXPECT_GE(swizzled.left_scales - swizzled.bias, 200 * sizeof(float));
  EXPECT_EQ(swizzled.bytes, swizzled.left_scales) << "swizzled scales are read where they lie";
  o.a.scale_layout = ScaleLayout::row_major;
  o.b.scale_layout = ScaleLayout::row_major;
  const BlackwellWorkspace parts = blackwell_workspace(o.a, o.b);
  EXPECT_EQ(parts.right_scales - parts.left_scales, 2u * 256 * 8);
  EXPECT_EQ(parts.bytes - parts.right_scales, 2u * 256 * 8);
  for (const std::size_t begin : {parts.bias, parts.left_scales, parts.right_scales}) {
    EXPECT_EQ(begin % 256, 0u);
  }
}

// Strides of extents that are 1 go into descriptors as well, which want multiples of 16 bytes.
TEST(TakesBlackwell, StridesOfWhatIsThereOnce) {
  Operands o = operands(Scheme::mxfp4, Scheme::mxfp4, {1, 1, 256}, 24);
  o.out.row_stride = 3;
  o.out.batch_stride = 5;
  ASSERT_TRUE(takes(o));
  EXPECT_EQ(blackwell_product(o.a, o.b, o.out).row_stride, 24);
  EXPECT_EQ(blackwell_product(o.a, o.b, o.out).batch_stride, 24);
  o = operands(Scheme::mxfp8_e4m3, Scheme::mxfp8_e4m3, {3, 512, 256}, 128);
  o.out.row_stride = 136;
  o.out.batch_stride = 512 * 136 + 8;
  ASSERT_TRUE(takes(o));
  EXPECT_EQ(blackwell_product(o.a, o.b, o.out).row_stride, 136);
  EXPECT_EQ(blackwell_product(o.a, o.b, o.out).batch_stride, 512 * 136 + 8);
  EXPECT_EQ(blackwell_product(o.a, o.b, o.out).batch, 3);
  o.b.shape.batch = 1;  // serves each matrix: one after the other
  EXPECT_EQ(blackwell_product(o.a, o.b, o.out).batch, 1);
}

TEST(TakesBlackwell, SaysWhy) {
  const Operands o = operands(Scheme::nvfp4, Scheme::mxfp4, {1, 128, 256}, 128);
  EXPECT_NE(std::string(why_not_blackwell(o.a, o.b, o.out)).find("schemes"), std::string::npos);
}

}  // namespace
}  // namespace mxkern::cuda
