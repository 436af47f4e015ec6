// tests/cuda/gemm/portable_test.cc: products of anything with anything against float64.
#include "cuda/gemm/portable.h"

#include <cmath>
#include <vector>

#include "cuda/operands/expand.h"
#include "tests/support/cuda/operand.h"
#include "tests/support/show.h"

namespace mxkern {
namespace {

using namespace test;

using CudaMultiplyPortable = CudaTest;

struct Size {
  std::int64_t batch, m, n, k;
};

// Tiles that are whole, and ones of which hardly anything is there.
const Size sizes[] = {{1, 1, 1, 1},      {1, 17, 33, 32},    {2, 65, 127, 96},
                      {1, 130, 140, 33}, {1, 128, 128, 160}, {3, 5, 70, 31}};

struct Finish {
  float alpha = 1.0f, beta = 0.0f;
  bool has_bias = false;
  std::int64_t gap = 0;
  bool misaligned = false;
};

// All values of an operand: each is needed many times.
template <class Operand>
std::vector<double> values_of(Operand& operand) {
  const Shape& shape = operand.view.shape;
  std::vector<double> values;
  for (std::int64_t z = 0; z < shape.batch; ++z) {
    for (std::int64_t i = 0; i < shape.rows; ++i) {
      for (std::int64_t k = 0; k < shape.columns; ++k) values.push_back(operand.value(z, i, k));
    }
  }
  return values;
}

// Expands both, multiplies, and returns the relative L2 error; what is not finite has to agree.
template <class Left, class Right>
double product_error(const GemmOperand& a, Left& left, const GemmOperand& b, Right& right,
                     const Size& size, DType dtype, const Finish& options, const float* left_scale,
                     const float* right_scale) {
  const bool shares = right.view.shape.batch == 1;
  PlainTensor out(dtype, {size.batch, size.m, size.n}, options.gap, options.gap);
  PlainTensor bias(DType::float16, {1, 1, size.n});
  bias.fill(normal_values(77));
  if (options.beta != 0.0f) out.fill(normal_values(78));
  const PlainTensor before = out;
  DevicePlainTensor device_out(out, options.misaligned), device_bias(bias);
  DeviceBytes left_memory(static_cast<std::size_t>(cuda::expanded_layout(a).bytes));
  DeviceBytes right_memory(static_cast<std::size_t>(cuda::expanded_layout(b).bytes));
  cuda::expand("test", {&a, left_memory.data()}, {&b, right_memory.data()}, {});
  cuda::CoreFinish finish;
  finish.alpha = options.alpha;
  finish.beta = options.beta;
  finish.left_tensor_scale = left_scale;
  finish.right_tensor_scale = right_scale;
  if (options.has_bias) {
    finish.bias = device_bias.view().data;
    finish.bias_dtype = DType::float16;
  }
  finish.out = device_out.view();
  cuda::multiply_portable("test", cuda::expanded_view(a, left_memory.data()),
                          cuda::expanded_view(b, right_memory.data()), finish, {}, {});
  device_out.copy_to(out);
  const std::vector<double> lefts = values_of(left), rights = values_of(right);
  double errors = 0.0, squares = 0.0;
  for (std::int64_t z = 0; z < size.batch; ++z) {
    for (std::int64_t i = 0; i < size.m; ++i) {
      for (std::int64_t j = 0; j < size.n; ++j) {
        double sum = 0.0;
        const std::int64_t row = (z * size.m + i) * size.k;
        const std::int64_t column = ((shares ? 0 : z) * size.n + j) * size.k;
        for (std::int64_t k = 0; k < size.k; ++k) {
          sum += lefts[static_cast<std::size_t>(row + k)] *
                 rights[static_cast<std::size_t>(column + k)];
        }
        double want = options.alpha * sum;
        if (options.beta != 0.0f) want += options.beta * before.value(z, i, j);
        if (options.has_bias) want += bias.value(0, 0, j);
        const double got = out.value(z, i, j);
        if (std::isfinite(want)) {
          EXPECT_TRUE(std::isfinite(got)) << "at " << z << ", " << i << ", " << j;
          errors += (got - want) * (got - want);
          squares += want * want;
        } else {
          EXPECT_TRUE(std::isnan(want) ? std::isnan(got) : got == want)
              << "at " << z << ", " << i << ", " << j << ": got " << show(got) << ", want "
              << show(want);
        }
      }
      // Between the rows nothing is written.
      for (std::int64_t j = size.n; j < size.n + options.gap; ++j) {
        EXPECT_TRUE(std::isnan(out.value(z, i, j))) << "behind row " << i;
      }
    }
  }
  return squares == 0.0 ? 0.0 : std::sqrt(errors / squares);
}

double limit_of(DType dtype) {
  return dtype == DType::float32 ? 2e-5 : dtype == DType::float16 ? 5e-4 : 3e-3;
}

QuantizedOperand normal_operand(Scheme scheme, const Shape& shape, ScaleLayout layout,
                                std::uint64_t seed) {
  QuantizedOperand q(scheme, shape, layout);
  q.quantize(normal_values(seed));
  return q;
}

TEST_F(CudaMultiplyPortable, EverySchemeWithEveryScheme) {
  int turn = 0;
  for (const Size& size : sizes) {
    for (const Scheme a : all_schemes) {
      for (const Scheme b : all_schemes) {
        ++turn;
        QuantizedOperand left =
            normal_operand(a, {size.batch, size.m, size.k}, all_scale_layouts[turn % 2], 1);
        QuantizedOperand right = normal_operand(b, {turn % 5 == 0 ? 1 : size.batch, size.n, size.k},
                                                all_scale_layouts[turn / 2 % 2], 2);
        DeviceQuantizedOperand device_left(left), device_right(right);
        const DType dtype = all_dtypes[turn % 3];
        Finish finish;
        if (turn % 2 == 0) finish.alpha = 0.7f;
        if (turn % 4 == 1) finish.beta = -0.5f;
        finish.has_bias = turn % 3 != 0;
        finish.gap = turn % 4;
        finish.misaligned = turn % 7 == 0;
        const double error = product_error(
            GemmOperand(device_left.view()), left, GemmOperand(device_right.view()), right, size,
            dtype, finish, device_left.view().tensor_scale, device_right.view().tensor_scale);
        ASSERT_LE(error, limit_of(dtype))
            << name_of(a) << " x " << name_of(b) << " to " << name_of(dtype) << ", " << size.m
            << " x " << size.n << " x " << size.k;
        if (HasFailure()) return;
      }
    }
  }
}

TEST_F(CudaMultiplyPortable, PlainLeftOperandsKeepTheirBits) {
  int turn = 0;
  for (const Size& size : sizes) {
    for (const DType dtype : all_dtypes) {
      for (const int gap : {0, 1, 8}) {
        ++turn;
        PlainTensor left(dtype, {size.batch, size.m, size.k}, gap);
        left.fill(normal_values(3));
        QuantizedOperand right = normal_operand(all_schemes[turn % 7], {1, size.n, size.k},
                                                all_scale_layouts[turn % 2], 4);
        DevicePlainTensor device_left(left);
        DeviceQuantizedOperand device_right(right);
        const double error = product_error(
            GemmOperand(device_left.view()), left, GemmOperand(device_right.view()), right, size,
            DType::float32, {}, nullptr, device_right.view().tensor_scale);
        ASSERT_LE(error, 2e-6) << name_of(dtype) << " x " << name_of(right.view.scheme) << ", "
                               << size.m << " x " << size.n << " x " << size.k;
        if (HasFailure()) return;
      }
    }
  }
}

// Scales of both operands far apart, against each other, so that every block counts.
TEST_F(CudaMultiplyPortable, OppositeScalesAreExact) {
  const Size size{1, 40, 72, 256};
  for (const int spread : {0, 8, 20, 40, 100}) {
    const auto gain = [&](std::int64_t k, int sign) {
      return std::ldexp(1.0, sign * static_cast<int>((k / 32 * 37 % 8) * spread / 7 - spread / 2));
    };
    const Values normal = normal_values(5), other = normal_values(6);
    QuantizedOperand left(Scheme::mxfp8_e4m3, {1, size.m, size.k}, ScaleLayout::row_major);
    QuantizedOperand right(Scheme::mxfp4, {1, size.n, size.k}, ScaleLayout::swizzled);
    left.quantize([&](auto b, auto r, auto k) { return normal(b, r, k) * gain(k, 1); });
    right.quantize([&](auto b, auto r, auto k) { return other(b, r, k) * gain(k, -1); });
    DeviceQuantizedOperand device_left(left), device_right(right);
    const double error =
        product_error(GemmOperand(device_left.view()), left, GemmOperand(device_right.view()),
                      right, size, DType::float32, {}, nullptr, nullptr);
    ASSERT_LE(error, 2e-6) << "spread " << spread;
  }
}

// Tensor scales and alpha may lie far from one, as long as their product with the sums does not.
TEST_F(CudaMultiplyPortable, TensorScalesFarFromOne) {
  const Size size{1, 40, 72, 96};
  QuantizedOperand left =
      normal_operand(Scheme::nvfp4, {1, size.m, size.k}, ScaleLayout::row_major, 9);
  QuantizedOperand right =
      normal_operand(Scheme::nvfp4, {1, size.n, size.k}, ScaleLayout::swizzled, 10);
  struct Factors {
    float left, right, alpha;
  };
  for (const Factors& f : {Factors{1e-38f, 1e38f, 1.0f}, Factors{1e30f, 1e30f, 1e-37f},
                           Factors{1e-44f, 1e20f, 1e20f}, Factors{1e-20f, 1e-22f, 1.0f}}) {
    left.tensor_scale = f.left;
    right.tensor_scale = f.right;
    DeviceQuantizedOperand device_left(left), device_right(right);
    const double error =
        product_error(GemmOperand(device_left.view()), left, GemmOperand(device_right.view()),
                      right, size, DType::float32, {.alpha = f.alpha},
                      device_left.view().tensor_scale, device_right.view().tensor_scale);
    ASSERT_LE(error, 2e-6) << f.left << " * " << f.right << " * " << f.alpha;
  }
}

TEST_F(CudaMultiplyPortable, PoisonStaysInItsRowAndColumn) {
  const Size size{1, 70, 90, 160};
  QuantizedOperand left =
      normal_operand(Scheme::mxfp8_e5m2, {1, size.m, size.k}, ScaleLayout::swizzled, 7);
  QuantizedOperand right =
      normal_operand(Scheme::nvfp4, {1, size.n, size.k}, ScaleLayout::row_major, 8);
  left.scale(0, 3, 2) = E8M0::nan_byte;
  left.set_code(0, 66, 159, 0x7C);  // Inf
  right.scale(0, 88, 0) = UE4M3::nan_byte;
  DeviceQuantizedOperand device_left(left), device_right(right);
  const double error =
      product_error(GemmOperand(device_left.view()), left, GemmOperand(device_right.view()), right,
                    size, DType::float32, {}, nullptr, device_right.view().tensor_scale);
  EXPECT_LE(error, 2e-6);
}

// K = 0 leaves beta * out + bias.
TEST_F(CudaMultiplyPortable, NothingToSum) {
  const Size size{1, 20, 30, 0};
  QuantizedOperand left(Scheme::mxfp4, {1, size.m, 0}, ScaleLayout::row_major);
  QuantizedOperand right(Scheme::mxfp4, {1, size.n, 0}, ScaleLayout::row_major);
  DeviceQuantizedOperand device_left(left), device_right(right);
  const Finish finish{2.0f, 0.5f, true, 0, false};
  EXPECT_LE(product_error(GemmOperand(device_left.view()), left, GemmOperand(device_right.view()),
                          right, size, DType::float32, finish, nullptr, nullptr),
            1e-6);
}

}  // namespace
}  // namespace mxkern
