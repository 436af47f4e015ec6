// tests/support/gemm_reference.h: the matrix product in double precision, a run of one unit of the
// library, and the comparison of both, element by element.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <new>
#include <string>
#include <vector>

#include "cpu/gemm/gemm.h"
#include "ops/gemm_with.h"
#include "mxkern/prepare_operand.h"
#include "tests/support/gemm_operand.h"
#include "tests/support/show.h"

namespace mxkern::test {

inline std::vector<GemmUnit> available_units() {
  std::vector<GemmUnit> units;
  for (const GemmUnit unit : all_gemm_units) {
    if (cpu::gemm_capabilities().runs(unit)) units.push_back(unit);
  }
  return units;
}

inline const char* operand_name(const GemmOperand& a) {
  if (const auto* plain = std::get_if<Buffer>(&a)) return name_of(plain->dtype);
  return name_of(std::get<BlockScaled>(a).scheme);
}

// Memory aligned as gemm wants it.
class AlignedMemory {
 public:
  explicit AlignedMemory(std::size_t bytes)
      : bytes_(bytes), data_(::operator new (bytes + 1, std::align_val_t{64})) {
    std::fill_n(static_cast<std::uint8_t*>(data_), bytes, std::uint8_t{0xFF});
  }
  ~AlignedMemory() { ::operator delete (data_, std::align_val_t{64}); }
  AlignedMemory(const AlignedMemory&) = delete;
  AlignedMemory& operator=(const AlignedMemory&) = delete;

  Workspace workspace() const { return {data_, bytes_}; }

 private:
  std::size_t bytes_;
  void* data_;
};

// The product by one unit with b as panels, without its codes. Units for few rows take either
// panels or codes.
inline void run_with_panels(GemmUnit unit, const GemmOperand& a, const BlockScaled& b,
                            const Buffer& out, const GemmOptions& options = {}, int threads = 2) {
  const std::size_t bytes = prepared_bytes(PreparedForm::panels, b.scheme, b.shape);
  const AlignedMemory data(bytes);
  PreparedOperand prepared{PreparedForm::panels, b, data.workspace().data, bytes};
  prepare_operand(b, prepared);
  prepared.source.codes = prepared.source.scales = nullptr;
  const CpuGemmPlan plan = plan_gemm_cpu_with(unit, cpu_problem(a, prepared, out), threads);
  const AlignedMemory memory(plan.workspace_bytes);
  gemm_with(plan, a, prepared, out, options, memory.workspace());
}

// The product by one unit, as if on a machine of so many threads.
inline void run_unit(GemmUnit unit, const GemmOperand& a, const BlockScaled& b, const Buffer& out,
                     const GemmOptions& options = {}, int threads = 2) {
  if (reads_panels(unit)) return run_with_panels(unit, a, b, out, options, threads);
  const CpuGemmPlan plan = plan_gemm_cpu_with(unit, cpu_problem(a, b, out), threads);
  const AlignedMemory memory(plan.workspace_bytes);
  gemm_with(plan, a, b, out, options, memory.workspace());
}

// What an element of the output should be, and how far float32 sums may take it from there.
struct Expected {
  double value;
  double tolerance;
};

struct Reference {
  Shape shape;
  std::vector<Expected> elements;

  const Expected& at(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    return elements[static_cast<std::size_t>((batch * shape.rows + row) * shape.columns + column)];
  }
};

// Half of the last place of a value of the dtype: the error of rounding to it.
inline double rounding_error(DType dtype, double value) {
  const int mantissa_bits = dtype == DType::float32 ? 23 : dtype == DType::float16 ? 10 : 7;
  const int smallest = dtype == DType::float16 ? -14 : -126;
  const int exponent = value == 0.0 ? smallest : std::max(std::ilogb(value), smallest);
  return std::ldexp(0.5, exponent - mantissa_bits);
}

// out before the call supplies beta's term. The error of a sum of K products in float32 is at most
// K * 2^-24 of the sum of their magnitudes; what follows the sum adds a few roundings.
template <class Left, class Right>
Reference multiply(Left& a, Right& b, const PlainTensor& out, const GemmOptions& options = {},
                   const PlainTensor* bias = nullptr) {
  const Shape shape = out.view.shape;
  const std::int64_t k = b.view.shape.columns;
  std::vector<double> left(static_cast<std::size_t>(shape.rows * k));
  std::vector<double> right(static_cast<std::size_t>(shape.columns * k));
  Reference reference{shape, {}};
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    for (std::int64_t i = 0; i < shape.rows * k; ++i) {
      left[static_cast<std::size_t>(i)] = a.value(batch, i / k, i % k);
    }
    for (std::int64_t i = 0; i < shape.columns * k; ++i) {
      right[static_cast<std::size_t>(i)] =
          b.value(b.view.shape.batch == 1 ? 0 : batch, i / k, i % k);
    }
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      for (std::int64_t column = 0; column < shape.columns; ++column) {
        double sum = 0.0;
        double magnitude = 0.0;
        for (std::int64_t i = 0; i < k; ++i) {
          const double product = left[static_cast<std::size_t>(row * k + i)] *
                                 right[static_cast<std::size_t>(column * k + i)];
          sum += product;
          magnitude += std::fabs(product);
        }
        const double alpha = options.alpha;
        const double before =
            options.beta == 0.0f ? 0.0 : options.beta * out.value(batch, row, column);
        const double offset = bias == nullptr ? 0.0 : bias->value(0, 0, column);
        const double value = (k == 0 ? 0.0 : alpha * sum) + before + offset;
        const double sizes = std::fabs(alpha) * magnitude + std::fabs(before) + std::fabs(offset);
        const double tolerance =
            static_cast<double>(k + 8) * 0x1p-24 * sizes +
            (std::isfinite(value) ? rounding_error(out.view.dtype, value) : 0.0);
        reference.elements.push_back({value, tolerance});
      }
    }
  }
  return reference;
}

// Largest finite value of the dtype; what is well beyond it must be Inf.
inline double largest_value(DType dtype) {
  return dtype == DType::float16 ? 65504.0 : static_cast<double>(float32::largest());
}

inline bool is_as_expected(double got, const Expected& want, DType dtype) {
  if (std::isnan(want.value)) return std::isnan(got);
  if (std::isinf(want.value)) return got == want.value;
  if (std::isinf(got)) {
    return std::signbit(got) == std::signbit(want.value) &&
           std::fabs(want.value) + want.tolerance >= largest_value(dtype);
  }
  return std::fabs(got - want.value) <= want.tolerance;
}

// Stops at the first element that is wrong.
inline ::testing::AssertionResult agrees(const PlainTensor& out, const Reference& reference,
                                         const std::string& what) {
  const Shape& shape = reference.shape;
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      for (std::int64_t column = 0; column < shape.columns; ++column) {
        const double got = out.value(batch, row, column);
        const Expected& want = reference.at(batch, row, column);
        if (is_as_expected(got, want, out.view.dtype)) continue;
        return ::testing::AssertionFailure()
               << what << ", out " << name_of(out.view.dtype) << " [" << shape.batch << ", "
               << shape.rows << ", " << shape.columns << "] at (" << batch << ", " << row << ", "
               << column << "): got " << show(static_cast<float>(got)) << ", want "
               << show(static_cast<float>(want.value)) << " within " << want.tolerance;
      }
    }
  }
  return ::testing::AssertionSuccess();
}

// ||out - reference|| / ||reference|| over the whole tensor; 0 where they are equal.
inline double relative_error(const PlainTensor& out, const Reference& reference) {
  double error = 0.0;
  double size = 0.0;
  const Shape& shape = reference.shape;
  for (std::int64_t batch = 0; batch < shape.batch; ++batch) {
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      for (std::int64_t column = 0; column < shape.columns; ++column) {
        const double want = reference.at(batch, row, column).value;
        const double difference = out.value(batch, row, column) - want;
        error += difference * difference;
        size += want * want;
      }
    }
  }
  return error == 0.0 ? 0.0 : std::sqrt(error / size);
}

inline std::string describe_case(GemmUnit unit, const GemmOperand& a, const BlockScaled& b) {
  return std::string(name_of(unit)) + ", " + operand_name(a) + " x " + name_of(b.scheme) +
         ", K = " + std::to_string(b.shape.columns);
}

}  // namespace mxkern::test
