// tests/support/grouped_product.h: a product whose rows or columns belong to groups, and its
// reference.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "mxkern/grouped_gemm.h"
#include "tests/support/gemm_reference.h"

namespace mxkern::test {

enum class GroupAxis { rows, columns };

// Left: a PlainTensor or a QuantizedOperand. Factors and biases may be left out.
template <class Left>
struct GroupedProduct {
  GroupAxis axis;
  Left a;
  QuantizedOperand b;
  PlainTensor out;
  std::vector<std::int32_t> ends;
  float alpha = 1.0f, beta = 0.0f;
  GemmPrecision precision = GemmPrecision::exact;
  std::vector<float> factors;
  std::optional<PlainTensor> bias;

  GroupedProduct(Left left, Scheme scheme, std::int64_t n, std::vector<std::int32_t> group_ends,
                 DType out_dtype, std::int64_t gap = 0, ScaleLayout layout = ScaleLayout::row_major,
                 GroupAxis groups = GroupAxis::rows)
      : axis(groups),
        a(std::move(left)),
        b(scheme, {of_rows() ? count(group_ends) : 1, n, a.view.shape.columns}, layout),
        out(out_dtype, {of_rows() ? 1 : count(group_ends), a.view.shape.rows, n}, gap),
        ends(std::move(group_ends)) {}

  bool of_rows() const { return axis == GroupAxis::rows; }

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

  // What the output has before the product counts.
  void add_output(float factor) {
    beta = factor;
    out.fill(normal_values(57));
    before_ = out;
  }
  // As it was before a product was written to it, where that counts.
  PlainTensor& output_before() { return before_ ? out = *before_ : out; }

  static std::int64_t count(const std::vector<std::int32_t>& ends) {
    return static_cast<std::int64_t>(ends.size());
  }
  Groups groups() const {
    if (of_rows()) return RowGroups{ends.data(), count(ends)};
    return ColumnGroups{ends.data(), count(ends)};
  }

  GroupedGemmOptions options() {
    GroupedGemmOptions options;
    options.alpha = alpha;
    options.beta = beta;
    options.precision = precision;
    options.factors = factors.empty() ? nullptr : factors.data();
    if (bias) {
      bias->buffer();
      options.bias = &bias->view;
    }
    return options;
  }

  Reference wanted() {
    Reference reference{out.view.shape, {}};
    const Shape left = a.view.shape, right = b.view.shape;
    decoded_left_.clear();
    decoded_right_.clear();
    for (std::int64_t i = 0; i < left.rows * left.columns; ++i) {
      decoded_left_.push_back(a.value(0, i / left.columns, i % left.columns));
    }
    for (std::int64_t i = 0; i < right.size(); ++i) {
      const std::int64_t row = i / right.columns;
      decoded_right_.push_back(b.value(row / right.rows, row % right.rows, i % right.columns));
    }
    of_rows() ? add_rows(reference) : add_columns(reference);
    return reference;
  }

 private:
  double added(std::int64_t matrix, std::int64_t row, std::int64_t column) const {
    return before_ ? beta * before_->value(matrix, row, column) : 0.0;
  }

  // The products of a group with columns from begin to end, of a matrix of b.
  Expected sum(std::size_t group, std::int64_t row, std::int64_t column, std::int64_t matrix,
               std::int64_t begin, std::int64_t end) {
    const std::int64_t k = b.view.shape.columns;
    const double* left = decoded_left_.data() + row * k;
    const double* right = decoded_right_.data() + (matrix * b.view.shape.rows + column) * k;
    double sum = 0.0, magnitude = 0.0;
    for (std::int64_t i = begin; i < end; ++i) {
      const double product = left[i] * right[i];
      sum += product;
      magnitude += std::fabs(product);
    }
    const double factor = factors.empty() ? alpha : double{alpha} * factors[group];
    const auto own = static_cast<std::int64_t>(group);
    const double offset =
        (bias ? bias->value(own, 0, column) : 0.0) + added(of_rows() ? 0 : own, row, column);
    const double value = (begin == end ? 0.0 : factor * sum) + offset;
    const double sizes = std::fabs(factor) * magnitude + std::fabs(offset);
    return {value, static_cast<double>(end - begin + 8) * 0x1p-24 * sizes +
                       (std::isfinite(value) ? rounding_error(out.view.dtype, value) : 0.0)};
  }

  Expected without_product(double value) const {
    return {value, value == 0.0 ? 0.0 : rounding_error(out.view.dtype, value)};
  }

  void add_rows(Reference& reference) {
    const std::int64_t k = b.view.shape.columns;
    for (std::int64_t row = 0; row < reference.shape.rows; ++row) {
      std::size_t group = 0;
      while (group < ends.size() && ends[group] <= row) ++group;
      for (std::int64_t column = 0; column < reference.shape.columns; ++column) {
        reference.elements.push_back(
            group == ends.size() ? without_product(added(0, row, column))
                                 : sum(group, row, column, static_cast<std::int64_t>(group), 0, k));
      }
    }
  }

  void add_columns(Reference& reference) {
    for (std::size_t group = 0; group < ends.size(); ++group) {
      const std::int64_t begin = group == 0 ? 0 : ends[group - 1];
      for (std::int64_t row = 0; row < reference.shape.rows; ++row) {
        for (std::int64_t column = 0; column < reference.shape.columns; ++column) {
          reference.elements.push_back(sum(group, row, column, 0, begin, ends[group]));
        }
      }
    }
  }

  std::vector<double> decoded_left_, decoded_right_;
  std::optional<PlainTensor> before_;
};

// Values of a kind: without a scheme plain ones.
inline GroupedProduct<PlainTensor> plain_product(DType dtype, Shape x, Scheme scheme,
                                                 std::int64_t n, std::vector<std::int32_t> ends,
                                                 DType out_dtype, std::int64_t gap = 0,
                                                 GroupAxis axis = GroupAxis::rows) {
  return {PlainTensor(dtype, x, gap), scheme, n, std::move(ends), out_dtype, gap,
          ScaleLayout::row_major,     axis};
}
inline GroupedProduct<QuantizedOperand> quantized_product(Scheme left, Shape x, Scheme scheme,
                                                          std::int64_t n,
                                                          std::vector<std::int32_t> ends,
                                                          DType out_dtype, ScaleLayout layout,
                                                          GroupAxis axis = GroupAxis::rows) {
  return {
      QuantizedOperand(left, x, layout), scheme, n, std::move(ends), out_dtype, 0, layout, axis};
}

}  // namespace mxkern::test
