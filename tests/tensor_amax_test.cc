// tests/tensor_amax_test.cc: the largest magnitude of a tensor.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "mxkern/quantize.h"

namespace mxkern {
namespace {

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

}  // namespace
}  // namespace mxkern
