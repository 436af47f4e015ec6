// tests/support/cuda/row_scaled_product.h: a product of row-scaled matrices and what it has to be.
#pragma once

#include <cmath>
#include <optional>
#include <ostream>
#include <vector>

#include "cuda/operands/row_scaled.h"
#include "tests/support/cuda/row_scaled_operand.h"
#include "tests/support/show.h"

namespace mxkern::test {

using cuda::CoreElement;
using cuda::CoreFinish;
using cuda::CoreGate;

inline const char* show(CoreElement element) {
  return element == CoreElement::e4m3 ? "E4M3" : element == CoreElement::e5m2 ? "E5M2" : "bfloat16";
}

struct RowScaledCase {
  CoreElement left = CoreElement::e4m3, right = CoreElement::e4m3;
  std::int64_t batch = 1, m = 1, n = 1, k = 1;
  DType dtype = DType::float32;
  std::int64_t right_batch = 0;  // 0: as many as `batch`
  std::int64_t gap = 0;          // between rows and matrices of the output
  bool misaligned = false;
  int parts = 1;
  int exponents = 6;  // up to this magnitude
  float alpha = 1.0f, beta = 0.0f;
  std::optional<DType> bias = {};
  std::optional<float> left_tensor_scale = {}, right_tensor_scale = {};
};

inline std::ostream& operator<<(std::ostream& out, const RowScaledCase& c) {
  return out << show(c.left) << " x " << show(c.right) << ", [" << c.batch << ", " << c.m << ", "
             << c.k << "] x [" << c.n << ", " << c.k << "] to " << name_of(c.dtype) << ", gap "
             << c.gap << (c.misaligned ? ", misaligned" : "") << ", parts " << c.parts << ", beta "
             << c.beta;
}

// The product of a case, and what it has to be.
struct RowScaledProduct {
  RowScaledCase c;
  RowScaledOperand left, right;
  Tensor out, before;
  std::vector<float> bias;

  explicit RowScaledProduct(const RowScaledCase& chosen, std::uint64_t seed = 1)
      : c(chosen),
        left(c.left, {c.batch, c.m, c.k}, seed, c.parts),
        right(c.right, {c.right_batch ? c.right_batch : c.batch, c.n, c.k}, seed + 1),
        out(c.dtype, {c.batch, c.m, c.n}, c.gap),
        before(c.dtype, {c.batch, c.m, c.n}, c.gap) {
    left.random_exponents(-c.exponents, c.exponents);
    right.random_exponents(-c.exponents, c.exponents);
    RandomBits random(seed + 2);
    out.for_each([&](std::int64_t b, std::int64_t i, std::int64_t j) {
      const float value = c.beta == 0.0f ? std::nanf("") : float_of(random.float_bits(-3, 3));
      out.set(b, i, j, value);
      before.set(b, i, j, value);
    });
    for (std::int64_t j = 0; j < c.n; ++j) bias.push_back(float_of(random.float_bits(0, 6)));
  }

  // Computes out on the device with multiply(left, right, finish, gate).
  template <class Multiply>
  void run_with(Multiply&& multiply, const CoreGate& gate, int spreads_shift) {
    DeviceTensor device_out(out, c.misaligned);
    Tensor bias_tensor(c.bias.value_or(DType::float32), {1, 1, c.n});
    for (std::int64_t j = 0; j < c.n; ++j) bias_tensor.set(0, 0, j, bias[j]);
    DeviceTensor device_bias(bias_tensor);
    DeviceFloat left_scale(c.left_tensor_scale.value_or(1)),
        right_scale(c.right_tensor_scale.value_or(1));
    CoreFinish finish;
    finish.alpha = c.alpha;
    finish.beta = c.beta;
    if (c.left_tensor_scale) finish.left_tensor_scale = left_scale.address();
    if (c.right_tensor_scale) finish.right_tensor_scale = right_scale.address();
    if (c.bias) finish.bias = device_bias.buffer().data;
    finish.bias_dtype = bias_tensor.dtype();
    finish.out = device_out.buffer();
    const bool has_exponents = c.exponents > 0;
    multiply(left.on_device(has_exponents, spreads_shift),
             right.on_device(has_exponents, spreads_shift), finish, gate);
    check_cuda(cudaDeviceSynchronize());
    device_out.copy_to(out);
  }

  // The sum of the products, and of their magnitudes.
  struct Sums {
    double sum = 0, magnitude = 0;
  };

  Sums sums(std::int64_t b, std::int64_t i, std::int64_t j) {
    Sums result;
    const std::int64_t right_b = right.shape().batch > 1 ? b : 0;
    for (int part = 0; part < c.parts; ++part) {
      for (std::int64_t k = 0; k < c.k; ++k) {
        const double product = left.get(b, i, k, part) * right.get(right_b, j, k, 0);
        result.sum += product;
        result.magnitude += std::fabs(product);
      }
    }
    const double factor =
        std::ldexp(static_cast<double>(c.alpha) * c.left_tensor_scale.value_or(1) *
                       c.right_tensor_scale.value_or(1),
                   left.exponent(b, i) + right.exponent(right_b, j));
    return {result.sum * factor, result.magnitude * std::fabs(factor)};
  }

  // Each element, or one of `every`, within what its sum may lose and what rounding to the output's
  // type loses.
  void expect_right(std::int64_t every = 1) {
    const double loss = c.left == CoreElement::bfloat16 ? 0x1p-20 : 0x1p-10;
    const double half_place = c.dtype == DType::float32   ? 0x1p-22
                              : c.dtype == DType::float16 ? 0x1p-11
                                                          : 0x1p-8;
    out.for_each([&](std::int64_t b, std::int64_t i, std::int64_t j) {
      if ((i * 31 + j) % every != 0 || ::testing::Test::HasFatalFailure()) return;
      const Sums exact = sums(b, i, j);
      const double was = c.beta == 0.0f ? 0.0 : c.beta * static_cast<double>(before.get(b, i, j));
      // The bias as its type holds it.
      const double more = c.bias ? visit(*c.bias,
                                         [&](auto tag) {
                                           return static_cast<double>(to_float(
                                               from_float<typename decltype(tag)::type>(bias[j])));
                                         })
                                 : 0.0;
      const double wanted = exact.sum + was + more;
      const double got = static_cast<double>(out.get(b, i, j));
      const double room = loss * exact.magnitude + half_place * std::fabs(wanted) +
                          0x1p-22 * (std::fabs(was) + std::fabs(more)) +
                          (c.dtype == DType::float16 ? 0x1p-25 : 0.0);
      ASSERT_LE(std::fabs(got - wanted), room)
          << c << " at " << b << ", " << i << ", " << j << ": " << test::show(out.get(b, i, j))
          << ", wanted " << test::show(wanted);
    });
    ASSERT_TRUE(out.bytes().margins_are_intact()) << c;
  }

  // Between rows and matrices nothing was written.
  void expect_gaps() {
    Tensor other(c.dtype, out.shape(), c.gap);
    other.for_each([&](std::int64_t b, std::int64_t i, std::int64_t j) {
      std::memcpy(other.bytes().data() + element_offset(b, i, j),
                  out.bytes().data() + element_offset(b, i, j), size_of(c.dtype));
    });
    ASSERT_TRUE(std::equal(other.bytes().whole().begin(), other.bytes().whole().end(),
                           out.bytes().whole().begin()))
        << c;
  }

  std::int64_t element_offset(std::int64_t b, std::int64_t i, std::int64_t j) {
    const Buffer view = out.buffer();
    return (b * view.batch_stride + i * view.row_stride + j) *
           static_cast<std::int64_t>(size_of(c.dtype));
  }
};

}  // namespace mxkern::test
