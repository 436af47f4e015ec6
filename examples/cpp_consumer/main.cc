// examples/cpp_consumer/main.cc: quantize two matrices, multiply them, and catch an error.
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "mxkern/mxkern.h"

namespace {

std::vector<float> random_values(mxkern::Shape shape, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(shape.size());
  for (float& value : values) value = normal(generator);
  return values;
}

// The relative error of the quantized product of a and b, both [rows, depth].
double relative_error(mxkern::Scheme scheme) {
  const mxkern::Shape a_shape{1, 64, 96}, b_shape{1, 48, 96}, out_shape{1, 64, 48};
  const std::vector<float> a = random_values(a_shape, 1), b = random_values(b_shape, 2);

  const mxkern::OwnedBlockScaled qa =
      mxkern::quantize(mxkern::Buffer::dense(a.data(), mxkern::DType::float32, a_shape), scheme);
  const mxkern::OwnedBlockScaled qb =
      mxkern::quantize(mxkern::Buffer::dense(b.data(), mxkern::DType::float32, b_shape), scheme);

  std::vector<float> out(out_shape.size());
  mxkern::gemm(qa, qb, mxkern::Buffer::dense(out.data(), mxkern::DType::float32, out_shape));

  double error = 0, norm = 0;
  for (int m = 0; m < a_shape.rows; ++m) {
    for (int n = 0; n < b_shape.rows; ++n) {
      double exact = 0;
      for (int k = 0; k < a_shape.columns; ++k) {
        exact += double{a[m * a_shape.columns + k]} * b[n * b_shape.columns + k];
      }
      error += std::pow(out[m * b_shape.rows + n] - exact, 2);
      norm += exact * exact;
    }
  }
  return std::sqrt(error / norm);
}

// Errors are exceptions that say what was wrong and the way out.
bool reports_errors() {
  try {
    mxkern::scheme_of("mxfp9");
  } catch (const mxkern::InvalidArgument& error) {
    std::printf("refused, as it should be: %s\n", error.what());
    return true;
  }
  return false;
}

}  // namespace

int main() {
  const mxkern::Info info = mxkern::info();
  std::printf("mxkern %s on %s\n", info.version.c_str(), info.instruction_set.c_str());
  bool right = reports_errors();
  for (const mxkern::Scheme scheme : mxkern::all_schemes) {
    const double error = relative_error(scheme);
    std::printf("%-12s relative error of the product %.4f\n", mxkern::name_of(scheme), error);
    right = right && error > 0 && error < 0.25;
  }
  return right ? 0 : 1;
}
