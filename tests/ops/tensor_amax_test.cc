// tests/ops/tensor_amax_test.cc: the largest magnitude of a tensor.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "mxkern/mxkern.h"
#include "tests/support/error_message.h"
#include "tests/support/tensor.h"

namespace mxkern {
namespace {

using namespace test;

TEST(TensorAmax, SkipsWhatLiesBetweenMatrices) {
  float values[3 * 64] = {};
  values[5] = 2.0f;
  values[64 + 7] = 9.0f;  // of nobody
  values[128 + 9] = -3.0f;
  float amax = -1.0f;
  tensor_amax({values, DType::float32, {2, 2, 32}, 32, 128, {}}, &amax);
  EXPECT_EQ(amax, 3.0f);
}

// Of tiles, which threads find one by one.
TEST(TensorAmax, IsExactAmongTiles) {
  std::vector<float> x(100000, 0.0f);
  x[70000] = 0x1p-149f;
  float amax = -1.0f;
  const auto find = [&] {
    tensor_amax(Buffer::dense(x.data(), DType::float32, {1, 1, 100000}), &amax);
  };
  find();
  EXPECT_EQ(amax, 0x1p-149f);
  x[0] = 1.0f;
  x[70000] = std::nextafter(1.0f, 2.0f);
  find();
  EXPECT_EQ(amax, x[70000]);
}

// A transform along rows, or along columns, that random_hadamard makes of x or of its transpose;
// what is between the elements, and what is not finite, is left out.
TEST(TensorAmax, OfATransform) {
  for (const DType dtype : all_dtypes) {
    for (const int size : hadamard_sizes) {
      const std::int64_t n = size;
      for (const Shape& shape : {Shape{1, n, n}, Shape{2, 3 * n, 2 * n}}) {
        Tensor x(dtype, shape, 3);
        fill_mixed(x, 7);
        Tensor turned(dtype, {shape.batch, shape.columns, shape.rows});
        x.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
          turned.set(b, c, r, x.get(b, r, c));
        });
        const Hadamard hadamard{size, {0x123456789ABCDEFull, 0xFEDCBA987654321ull}};
        for (const bool columns : {false, true}) {
          Tensor transformed(dtype, columns ? turned.shape() : shape);
          random_hadamard((columns ? turned : x).buffer(), transformed.buffer(), hadamard);
          float wanted = -1.0f, amax = -1.0f;
          tensor_amax(transformed.buffer(), &wanted);
          tensor_amax(x.buffer(), &amax, {hadamard, columns});
          EXPECT_EQ(bits_of(amax), bits_of(wanted))
              << name_of(dtype) << ", " << size << " along " << (columns ? "columns" : "rows");
        }
      }
    }
  }
}

TEST(TensorAmax, ChecksTheTransform) {
  Tensor x(DType::float32, {1, 40, 32});
  float amax = 0.0f;
  const auto error = [&](const AmaxOptions& options) {
    return error_message([&] { tensor_amax(x.buffer(), &amax, options); });
  };
  EXPECT_EQ(error({{32, {}}, true}),
            "tensor_amax: a Hadamard transform of size 32 along an axis of 40; expected a multiple "
            "of 32");
  EXPECT_EQ(error({{8, {}}, false}),
            "tensor_amax: a Hadamard transform of size 8; expected 16, 32, 64 or 128, or 0 for "
            "none");
  EXPECT_EQ(error({{32, {}}, false}), "(nothing was thrown)");
}

}  // namespace
}  // namespace mxkern
