// tests/ops/owned_block_scaled_test.cc: quantized tensors that own their memory, and products that
// get theirs from an allocator.
#include "mxkern/owned_block_scaled.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "mxkern/dequantize.h"
#include "mxkern/scales.h"
#include "tests/support/error_message.h"

namespace mxkern {
namespace {

static_assert(!std::is_copy_constructible_v<OwnedBlockScaled>);
static_assert(!std::is_copy_assignable_v<OwnedBlockScaled>);
static_assert(std::is_nothrow_move_constructible_v<OwnedBlockScaled>);
static_assert(std::is_nothrow_move_assignable_v<OwnedBlockScaled>);

constexpr Shape shape{2, 5, 96};

std::vector<float> values(const Shape& of = shape, float factor = 1.0f) {
  std::vector<float> x(static_cast<std::size_t>(of.size()));
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = factor * (static_cast<float>(i * 2654435761u % 2000) - 1000.0f);
  }
  return x;
}

Buffer view(const std::vector<float>& x, const Shape& of = shape) {
  return Buffer::dense(x.data(), DType::float32, of);
}

std::vector<float> decoded(const BlockScaled& q) {
  std::vector<float> out(static_cast<std::size_t>(q.shape.size()));
  dequantize(q, Buffer::dense(out.data(), DType::float32, q.shape));
  return out;
}

// Counts what it gives, and fails from the given allocation on.
class Counting : public std::pmr::memory_resource {
 public:
  explicit Counting(int fails_at = 1000) : fails_at_(fails_at) {}
  int calls = 0;
  std::size_t held = 0;

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (calls++ == fails_at_) throw std::bad_alloc();
    EXPECT_EQ(alignment, OwnedMemory::alignment);
    void* memory = std::pmr::new_delete_resource()->allocate(bytes, alignment);
    std::memset(memory, 0xEE, bytes);
    held += bytes;
    return memory;
  }
  void do_deallocate(void* memory, std::size_t bytes, std::size_t alignment) override {
    std::pmr::new_delete_resource()->deallocate(memory, bytes, alignment);
    held -= bytes;
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  int fails_at_;
};

TEST(OwnedBlockScaled, HoldsWhatQuantizeWrites) {
  const std::vector<float> x = values();
  for (const Scheme scheme : all_schemes) {
    for (const ScaleLayout layout : all_scale_layouts) {
      Counting memory;
      OwnedBlockScaled q(scheme, shape, layout, {}, memory);
      quantize(view(x), q);
      const auto sizes = BlockScaled::sizes(scheme, shape, layout);
      std::vector<std::uint8_t> codes(static_cast<std::size_t>(sizes.codes));
      std::vector<std::uint8_t> scales(static_cast<std::size_t>(sizes.scales));
      float tensor_scale = 0;
      BlockScaled want;
      want.scheme = scheme;
      want.shape = shape;
      want.scale_layout = layout;
      want.codes = codes.data();
      want.scales = scales.data();
      if (sizes.tensor_scale > 0) want.tensor_scale = &tensor_scale;
      quantize(view(x), want);
      const BlockScaled got = q;
      EXPECT_EQ(std::memcmp(got.codes, codes.data(), codes.size()), 0) << name_of(scheme);
      EXPECT_EQ(std::memcmp(got.scales, scales.data(), scales.size()), 0) << name_of(scheme);
      ASSERT_EQ(got.tensor_scale != nullptr, scheme == Scheme::nvfp4);
      if (got.tensor_scale != nullptr) EXPECT_EQ(*got.tensor_scale, tensor_scale);
      EXPECT_TRUE(starts_on(got.codes, 256));
      EXPECT_TRUE(starts_on(got.scales, 128));
      EXPECT_EQ(memory.calls, 1);
    }
  }
}

TEST(OwnedBlockScaled, StaysRightInAVectorThatGrows) {
  const std::vector<float> x = values();
  std::vector<std::vector<float>> want;
  std::vector<OwnedBlockScaled> all;
  std::vector<BlockScaled> views;  // stay valid, as memory stays where it is
  for (int i = 0; i < 50; ++i) {
    all.push_back(
        quantize(view(x), all_schemes[static_cast<std::size_t>(i) % std::size(all_schemes)]));
    views.push_back(all.back());
    want.push_back(decoded(all.back()));
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(decoded(all[i]), want[i]) << i;
    EXPECT_EQ(decoded(views[i]), want[i]) << i;
  }
}

TEST(OwnedBlockScaled, MovesAndGivesBackWhatItHad) {
  Counting memory;
  const std::vector<float> x = values(), y = values(shape, 3.0f);
  {
    OwnedBlockScaled a = quantize(view(x), Scheme::nvfp4, {}, memory);
    OwnedBlockScaled b = quantize(view(y), Scheme::mxfp8_e4m3, {}, memory);
    const std::vector<float> of_a = decoded(a);
    const std::size_t both = memory.held;

    OwnedBlockScaled& same = a;
    a = std::move(same);
    EXPECT_EQ(decoded(a), of_a);
    EXPECT_EQ(memory.held, both);

    b = std::move(a);
    EXPECT_EQ(decoded(b), of_a);
    EXPECT_EQ(b.view().scheme, Scheme::nvfp4);
    EXPECT_LT(memory.held, both);
    EXPECT_EQ(a.view().codes, nullptr);
    EXPECT_EQ(a.view().scales, nullptr);
    EXPECT_EQ(a.view().tensor_scale, nullptr);
    EXPECT_NE(test::error_message([&] { decoded(a); }).find("codes is null"), std::string::npos);

    std::swap(a, b);
    EXPECT_EQ(decoded(a), of_a);
    a = OwnedBlockScaled(Scheme::mxfp4, {1, 1, 32});
    EXPECT_EQ(memory.held, 0u);
  }
  EXPECT_EQ(memory.held, 0u);
}

TEST(OwnedBlockScaled, IsReadOnlyWhereItIsConstant) {
  const std::vector<float> x = values();
  const OwnedBlockScaled q = quantize(view(x), Scheme::mxfp4);
  EXPECT_TRUE(q.view().is_read_only);
  test::expect_failure<InvalidArgument>("only read", [&] { quantize(view(x), q); });
}

TEST(OwnedBlockScaled, TakesNothing) {
  for (const Scheme scheme : all_schemes) {
    for (const Shape& empty : {Shape{0, 4, 64}, Shape{1, 0, 64}, Shape{2, 3, 0}, Shape{}}) {
      for (const ScaleLayout layout : all_scale_layouts) {
        OwnedBlockScaled q(scheme, empty, layout);
        const std::vector<float> nothing;
        quantize(view(nothing, empty), q);
        EXPECT_TRUE(decoded(q).empty());
      }
    }
  }
}

TEST(OwnedBlockScaled, WhatIsRefused) {
  test::expect_failure<InvalidArgument>("no negative extent", [] {
    OwnedBlockScaled(Scheme::mxfp4, {1, -1, 32});
  });
  const Device cuda{DeviceType::cuda, 1};
  for (auto* host : {std::pmr::get_default_resource(), std::pmr::new_delete_resource()}) {
    test::expect_failure<InvalidArgument>("device is cuda:1", [&] {
      OwnedBlockScaled(Scheme::mxfp4, shape, ScaleLayout::row_major, cuda, *host);
    });
  }
  Counting memory;  // stands for one of a device
  OwnedBlockScaled there(Scheme::nvfp4, shape, ScaleLayout::row_major, cuda, memory);
  EXPECT_EQ(there.view().device, cuda);
  EXPECT_NE(there.view().codes, nullptr);
}

TEST(OwnedBlockScaled, ProductsGetTheirWorkingMemory) {
  const Shape right_shape{1, 7, 96}, out_shape{2, 5, 7};
  const std::vector<float> x = values(), y = values(right_shape);
  const OwnedBlockScaled a = quantize(view(x), Scheme::nvfp4);
  OwnedBlockScaled row_major = quantize(view(y, right_shape), Scheme::mxfp6_e2m3);
  OwnedBlockScaled b(Scheme::mxfp6_e2m3, right_shape, ScaleLayout::swizzled);
  quantize(view(y, right_shape), b);

  std::vector<float> out(static_cast<std::size_t>(out_shape.size())), want = out;
  const Buffer result = Buffer::dense(want.data(), DType::float32, out_shape);
  std::vector<std::uint8_t> space(gemm_workspace_bytes(a, row_major, result) + 64);
  void* start = space.data();
  std::size_t bytes = space.size();
  ASSERT_NE(std::align(64, bytes - 63, start, bytes), nullptr);
  gemm(a, row_major, result, {}, Workspace{start, bytes});

  Counting memory;
  gemm(a, b, Buffer::dense(out.data(), DType::float32, out_shape), {}, memory);
  EXPECT_EQ(out, want);
  EXPECT_EQ(memory.calls, 1);
  EXPECT_EQ(memory.held, 0u);
  out.assign(out.size(), 0.0f);
  gemm(a, b, Buffer::dense(out.data(), DType::float32, out_shape));
  EXPECT_EQ(out, want);
  gemm(view(x), b, Buffer::dense(out.data(), DType::float32, out_shape), {.alpha = 0.0f});
  EXPECT_EQ(out, std::vector<float>(out.size(), 0.0f));
}

TEST(OwnedBlockScaled, AnAllocatorMayFail) {
  const std::vector<float> x = values();
  Counting none(0);
  EXPECT_THROW(OwnedBlockScaled(Scheme::mxfp4, shape, ScaleLayout::row_major, {}, none),
               std::bad_alloc);
  EXPECT_EQ(none.held, 0u);

  Counting one(1);
  {
    std::vector<OwnedBlockScaled> all;
    all.push_back(quantize(view(x), Scheme::nvfp4, {}, one));
    const std::vector<float> want = decoded(all[0]);
    EXPECT_THROW(all.push_back(quantize(view(x), Scheme::nvfp4, {}, one)), std::bad_alloc);
    EXPECT_EQ(decoded(all[0]), want);

    Counting no_workspace(0);
    std::vector<float> out(2 * 5 * 5, 7.0f), before = out;
    const Buffer result = Buffer::dense(out.data(), DType::float32, {2, 5, 5});
    EXPECT_THROW(gemm(all[0], all[0], result, {}, no_workspace), std::bad_alloc);
    EXPECT_EQ(out, before);
  }
  EXPECT_EQ(one.held, 0u);
}

// What it throws after it has memory gives that back.
TEST(OwnedBlockScaled, NothingIsLostWhereQuantizeRefuses) {
  Counting memory;
  const Buffer nowhere = Buffer::dense(nullptr, DType::float32, shape);
  EXPECT_THROW(static_cast<void>(quantize(nowhere, Scheme::mxfp4, {}, memory)), InvalidArgument);
  EXPECT_EQ(memory.calls, 1);
  EXPECT_EQ(memory.held, 0u);
}

TEST(OwnedBlockScaled, OptionsReachQuantize) {
  const std::vector<float> x = values();
  float amax = 5000.0f, found = -1.0f;
  const OwnedBlockScaled given = quantize(view(x), Scheme::nvfp4, {.amax = &amax});
  EXPECT_EQ(*given.view().tensor_scale, TensorScale::from_amax(amax).stored);
  const OwnedBlockScaled own = quantize(view(x), Scheme::nvfp4, {.found_amax = &found});
  EXPECT_EQ(found, 1000.0f);
}

}  // namespace
}  // namespace mxkern
