// examples/cpp_consumer/main.cc: quantize two matrices, multiply them, and catch an error.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "mxkern/mxkern.h"

namespace {

// A BlockScaled is a view; this owns the memory behind one.
struct Quantized {
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> scales;
  float tensor_scale = 1.0f;
  mxkern::BlockScaled view;

  Quantized(mxkern::Scheme scheme, mxkern::Shape shape) {
    const auto sizes = mxkern::BlockScaled::sizes(scheme, shape, mxkern::ScaleLayout::row_major);
    codes.resize(sizes.codes);
    scales.resize(sizes.scales);
    view.scheme = scheme;
    view.shape = shape;
    view.codes = codes.data();
    view.scales = scales.data();
    if (sizes.tensor_scale > 0) view.tensor_scale = &tensor_scale;
  }
};

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

  Quantized qa(scheme, a_shape), qb(scheme, b_shape);
  mxkern::quantize(mxkern::Buffer::dense(a.data(), mxkern::DType::float32, a_shape), qa.view);
  mxkern::quantize(mxkern::Buffer::dense(b.data(), mxkern::DType::float32, b_shape), qb.view);

  std::vector<float> out(out_shape.size());
  const auto out_view = mxkern::Buffer::dense(out.data(), mxkern::DType::float32, out_shape);
  // Nothing in the library allocates: the caller brings the memory that gemm works in.
  const std::size_t bytes = mxkern::gemm_workspace_bytes(qa.view, qb.view, out_view);
  struct alignas(64) Line {
    std::uint8_t bytes[64];
  };
  std::vector<Line> workspace(bytes / sizeof(Line) + 1);
  mxkern::gemm(qa.view, qb.view, out_view, {}, {workspace.data(), bytes});

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
  const mxkern::Shape shape{1, 4, 32};
  void* const nothing = nullptr;
  Quantized q(mxkern::Scheme::mxfp4, shape);
  try {
    mxkern::quantize(mxkern::Buffer::dense(nothing, mxkern::DType::float32, shape), q.view);
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
