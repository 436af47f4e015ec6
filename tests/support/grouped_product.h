// tests/support/grouped_product.h: a product whose rows belong to groups, and its reference.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "mxkern/grouped_gemm.h"
#include "tests/support/gemm_reference.h"

namespace mxkern::test {

// Left: a PlainTensor or a QuantizedOperand. Factors and biases may be left out.
template <class Left>
struct GroupedProduct {
  Left a;
  QuantizedOperand b;
  PlainTensor out;
  std::vector<std::int32_t> ends;
  float alpha = 1.0f;
  GemmPrecision precision = GemmPrecision::exact;
  std::vector<float> factors;
  std::optional<PlainTensor> bias;

  GroupedProduct(Left left, Scheme scheme, std::int64_t n, std::vector<std::int32_t> group_ends,
                 DType out_dtype, std::int64_t gap = 0, ScaleLayout layout = ScaleLayout::row_major)
      : a(std::move(left)),
        b(scheme, {static_cast<std::int64_t>(group_ends.size()), n, a.view.shape.columns}, layout),
        out(out_dtype, {1, a.view.shape.rows, n}, gap),
        ends(std::move(group_ends)) {}

  void fill(std::uint64_t seed) {
    if constexpr (requires { a.fill(normal_values(seed)); }) {
      a.fill(normal_values(seed));
    } else {
      a.quantize(normal_values(seed));
    }
    b.quantize(normal_values(seed + 1));
  }

  void add_factors_and_biases(DType dtype, std::int64_t gap) {
    for (std::size_t i = 0; i < ends.size(); ++i) {
      factors.push_back(static_cast<float>(i % 3) - 0.75f);
    }
    bias.emplace(dtype, Shape{static_cast<std::int64_t>(ends.size()), 1, out.view.shape.columns}, 0,
                 gap);
    bias->fill(normal_values(91));
  }

  RowGroups groups() const { return {ends.data(), static_cast<std::int64_t>(ends.size())}; }

  GroupedGemmOptions options() {
    GroupedGemmOptions options;
    options.alpha = alpha;
    options.precision = precision;
    options.factors = factors.empty() ? nullptr : factors.data();
    if (bias) {
      bias->buffer();
      options.bias = &bias->view;
    }
    return options;
  }

  Reference wanted() {
    const Shape& shape = out.view.shape;
    const std::int64_t k = b.view.shape.columns;
    Reference reference{shape, {}};
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      std::size_t group = 0;
      while (group < ends.size() && ends[group] <= row) ++group;
      for (std::int64_t column = 0; column < shape.columns; ++column) {
        if (group == ends.size()) {
          reference.elements.push_back({0.0, 0.0});
          continue;
        }
        const auto g = static_cast<std::int64_t>(group);
        double sum = 0.0, magnitude = 0.0;
        for (std::int64_t i = 0; i < k; ++i) {
          const double product = a.value(0, row, i) * b.value(g, column, i);
          sum += product;
          magnitude += std::fabs(product);
        }
        const double factor = factors.empty() ? alpha : double{alpha} * factors[group];
        const double offset = bias ? bias->value(g, 0, column) : 0.0;
        const double value = (k == 0 ? 0.0 : factor * sum) + offset;
        const double sizes = std::fabs(factor) * magnitude + std::fabs(offset);
        reference.elements.push_back(
            {value, static_cast<double>(k + 8) * 0x1p-24 * sizes +
                        (std::isfinite(value) ? rounding_error(out.view.dtype, value) : 0.0)});
      }
    }
    return reference;
  }
};

// Values of a kind: without a scheme plain ones.
inline GroupedProduct<PlainTensor> plain_product(DType dtype, Shape x, Scheme scheme,
                                                 std::int64_t n, std::vector<std::int32_t> ends,
                                                 DType out_dtype, std::int64_t gap = 0) {
  return {PlainTensor(dtype, x, gap), scheme, n, std::move(ends), out_dtype, gap};
}
inline GroupedProduct<QuantizedOperand> quantized_product(Scheme left, Shape x, Scheme scheme,
                                                          std::int64_t n,
                                                          std::vector<std::int32_t> ends,
                                                          DType out_dtype, ScaleLayout layout) {
  return {QuantizedOperand(left, x, layout), scheme, n, std::move(ends), out_dtype, 0, layout};
}

}  // namespace mxkern::test
