// tests/check/region_test.cc: the bytes of strided views, against a map of all of them.
#include "check/arguments.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "mxkern/core/buffer.h"

namespace mxkern {
namespace {

constexpr std::int64_t memory_elements = 4096;

alignas(64) std::uint16_t memory[memory_elements];

Buffer view(std::int64_t first, const Shape& shape, std::int64_t row_stride,
            std::int64_t batch_stride) {
  return {memory + first, DType::float16, shape, row_stride, batch_stride, {}};
}

std::vector<bool> bytes_of(const Buffer& x) {
  std::vector<bool> bytes(2 * memory_elements);
  const std::int64_t first = static_cast<std::uint16_t*>(x.data) - memory;
  for (std::int64_t b = 0; b < x.shape.batch; ++b) {
    for (std::int64_t r = 0; r < x.shape.rows; ++r) {
      for (std::int64_t c = 0; c < x.shape.columns; ++c) {
        const std::int64_t element = first + b * x.batch_stride + r * x.row_stride + c;
        bytes[2 * element] = bytes[2 * element + 1] = true;
      }
    }
  }
  return bytes;
}

bool share(const std::vector<bool>& a, const std::vector<bool>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] && b[i]) return true;
  }
  return false;
}

// Whether the region stands for these bytes alone.
bool is_exact(const Buffer& x, const std::vector<bool>& bytes) {
  const Region region(x);
  for (std::int64_t i = 0; i < 2 * memory_elements; ++i) {
    const Region byte(reinterpret_cast<std::uint8_t*>(memory) + i, 1);
    if (overlap(region, byte) != bytes[i] || overlap(byte, region) != bytes[i]) return false;
  }
  return true;
}

class RandomViews {
 public:
  Buffer next() {
    const Shape shape{number(1, 4), number(1, 6), number(1, 9)};
    // Rows of a matrix, and matrices: apart, without a gap, or into one another.
    const std::int64_t row_stride = shape.columns + (number(0, 2) == 0 ? 0 : number(0, 40));
    std::int64_t batch_stride = number(0, 3) == 0 ? number(0, 250) : shape.rows * row_stride;
    if (number(0, 3) == 0) batch_stride = row_stride * number(0, 8);
    if (number(0, 3) == 0) return view(number(0, 900), shape, batch_stride + 9, shape.columns);
    return view(number(0, 900), shape, row_stride, batch_stride);
  }

 private:
  std::int64_t number(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }

  std::mt19937 random_{1};
};

TEST(Region, HasTheBytesOfAView) {
  RandomViews views;
  int exact = 0;
  constexpr int count = 200;
  for (int i = 0; i < count; ++i) {
    const Buffer x = views.next();
    const std::vector<bool> bytes = bytes_of(x);
    if (is_exact(x, bytes)) {
      ++exact;
      continue;
    }
    // Matrices among the rows of another, in steps that are not of whole rows: all in between.
    const Region region(x);
    EXPECT_EQ(region.inner.count * region.outer.count, 1);
    EXPECT_GT(x.shape.rows, 1);
    EXPECT_GT(x.shape.batch, 1);
    for (std::int64_t byte = 0; byte < 2 * memory_elements; ++byte) {
      if (!bytes[byte]) continue;
      ASSERT_TRUE(overlap(region, Region(reinterpret_cast<std::uint8_t*>(memory) + byte, 1)));
    }
  }
  EXPECT_GT(exact, count * 8 / 10);
}

TEST(Region, OverlapIsAByteOfBoth) {
  RandomViews views;
  int shared = 0, apart_inside = 0;
  for (int i = 0; i < 20000; ++i) {
    const Buffer x = views.next(), y = views.next();
    const Region a(x), b(y);
    const bool want = share(bytes_of(x), bytes_of(y));
    shared += want;
    if (overlap(a, b) == want) {
      EXPECT_EQ(overlap(b, a), want);
      const Region from_a(x.data, static_cast<std::size_t>(a.extent()));
      apart_inside +=
          !want && overlap(from_a, Region(y.data, static_cast<std::size_t>(b.extent())));
      continue;
    }
    // Never too little; too much only where one of them is not exact.
    ASSERT_FALSE(want) << i;
    ASSERT_FALSE(is_exact(x, bytes_of(x)) && is_exact(y, bytes_of(y))) << i;
  }
  EXPECT_GT(shared, 1000);
  EXPECT_GT(apart_inside, 500);
}

TEST(Region, NothingOverlapsWhatIsEmpty) {
  const Region all(memory, sizeof memory);
  EXPECT_TRUE(overlap(all, all));
  EXPECT_FALSE(overlap(all, Region()));
  EXPECT_FALSE(overlap(all, Region(memory + 8, 0)));
  EXPECT_FALSE(overlap(all, Region(view(8, {2, 0, 4}, 4, 4))));
  EXPECT_FALSE(overlap(Region(view(8, {0, 3, 4}, 4, 4)), all));
}

TEST(Region, StridesOfOneRowMeanNothing) {
  const std::int64_t any = INT64_MAX;
  EXPECT_EQ(Region(view(0, {1, 1, 8}, any, any)).extent(), 16);
  EXPECT_EQ(Region(view(0, {1, 3, 8}, 8, any)).extent(), 48);
  EXPECT_EQ(Region(view(0, {3, 1, 8}, any, 20)).extent(), 96);
}

// Rows are not looked at one by one where strides are equal.
TEST(Region, ManyRowsTakeNoTime) {
  const std::int64_t rows = std::int64_t{1} << 40;
  auto* const first = reinterpret_cast<std::uint16_t*>(std::uintptr_t{1} << 20);
  const Buffer left{first, DType::float16, {1, rows, 64}, 128, 0, {}};
  Buffer right = left;
  right.data = first + 64;
  EXPECT_FALSE(overlap(Region(left), Region(right)));
  right.data = first + 63;
  EXPECT_TRUE(overlap(Region(left), Region(right)));
  right.data = first + 128 * (rows - 1) + 64;
  EXPECT_FALSE(overlap(Region(left), Region(right)));
}

}  // namespace
}  // namespace mxkern
