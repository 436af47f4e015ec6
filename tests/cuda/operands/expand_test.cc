// tests/cuda/operands/expand_test.cc: expanded rows are exactly their operand, whatever that is.
#include "cuda/operands/expand.h"

#include <cmath>
#include <vector>

#include "tests/support/cuda/operand.h"
#include "tests/support/show.h"

namespace mxkern {
namespace {

using namespace test;

using CudaExpand = CudaTest;

const Shape shapes[] = {{1, 1, 1},    {1, 33, 31},       {2, 16, 64}, {3, 5, 129}, {1, 17, 100},
                        {2, 9, 4096}, {1, 3, 8192 + 40}, {1, 0, 32},  {1, 5, 0}};

// What expand left on the device, or the operand itself where it is taken as it lies.
class Expanded {
 public:
  explicit Expanded(const GemmOperand& operand)
      : operand_(operand),
        memory_(std::vector<std::uint8_t>(
            static_cast<std::size_t>(cuda::expanded_layout(operand).bytes), 0xCD)) {}

  cuda::ExpandTask task() { return {&operand_, memory_.data()}; }
  std::uint8_t* data() { return memory_.data(); }

  void fetch() {
    view_ = cuda::expanded_view(operand_, memory_.data());
    if (view_.rows * view_.batch == 0) return;
    const std::int64_t end = (view_.batch - 1) * view_.batch_bytes +
                             (view_.rows - 1) * view_.row_bytes +
                             (view_.parts - 1) * view_.part_bytes + view_.columns * 2;
    elements_.resize(static_cast<std::size_t>(end));
    check_cuda(cudaMemcpy(elements_.data(), view_.data, elements_.size(), cudaMemcpyDeviceToHost));
    exponents_.assign(static_cast<std::size_t>(view_.batch * view_.rows), 0);
    if (view_.exponents == nullptr) return;
    check_cuda(cudaMemcpy(exponents_.data(), view_.exponents, exponents_.size() * 4,
                          cudaMemcpyDeviceToHost));
  }

  double value(std::int64_t batch, std::int64_t row, std::int64_t column) const {
    double sum = 0.0;
    for (int part = 0; part < view_.parts; ++part) {
      bfloat16 element;
      std::memcpy(&element,
                  elements_.data() + batch * view_.batch_bytes + row * view_.row_bytes +
                      part * view_.part_bytes + column * 2,
                  sizeof element);
      sum += static_cast<double>(to_float(element));
    }
    return std::ldexp(sum, exponents_[static_cast<std::size_t>(batch * view_.rows + row)]);
  }

 private:
  GemmOperand operand_;
  DeviceCopy memory_;
  cuda::RowScaled view_ = {};
  std::vector<std::uint8_t> elements_;
  std::vector<std::int32_t> exponents_;
};

template <class Host>
void expect_exact(Host& host, const Expanded& expanded, const Shape& shape,
                  const std::string& what) {
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t r = 0; r < shape.rows; ++r) {
      for (std::int64_t c = 0; c < shape.columns; ++c) {
        const double got = expanded.value(b, r, c), want = host.value(b, r, c);
        ASSERT_TRUE(got == want || (std::isnan(got) && std::isnan(want)))
            << what << " [" << shape.batch << ", " << shape.rows << ", " << shape.columns << "] at "
            << b << ", " << r << ", " << c << ": got " << show(got) << ", want " << show(want);
      }
    }
  }
}

// Random codes, scales up to 120 octaves apart and poisoned blocks. The tensor scale is not part of
// what is expanded.
QuantizedOperand random_operand(Scheme scheme, const Shape& shape, ScaleLayout layout,
                                RandomBits& random) {
  QuantizedOperand q(scheme, shape, layout);
  q.fill_with_random_bytes(random);
  if (facts_of(scheme).has_tensor_scale) return q;
  q.for_each_row([&](std::int64_t batch, std::int64_t row) {
    const int lowest = random.between(0, 134);
    for (std::int64_t block = 0; block < q.view.scale_index().blocks; ++block) {
      q.scale(batch, row, block) = static_cast<std::uint8_t>(
          random.between(0, 30) == 0 ? 255 : lowest + random.between(0, 120));
    }
  });
  return q;
}

// Two operands of different kinds in one launch.
TEST_F(CudaExpand, QuantizedOperandsAreExact) {
  RandomBits random(1);
  for (const Scheme scheme : all_schemes) {
    for (const ScaleLayout layout : all_scale_layouts) {
      for (const Shape& shape : shapes) {
        QuantizedOperand first = random_operand(scheme, shape, layout, random);
        const Scheme other = all_schemes[random.between(0, 6)];
        const Shape other_shape{1, 40, shape.columns};
        QuantizedOperand second = random_operand(other, other_shape, layout, random);
        DeviceQuantizedOperand device_first(first, random.between(0, 1) == 1);
        DeviceQuantizedOperand device_second(second);
        Expanded expanded_first(device_first.view()), expanded_second(device_second.view());
        cuda::expand("expand", expanded_first.task(), expanded_second.task(), {});
        expanded_first.fetch();
        expanded_second.fetch();
        expect_exact(first, expanded_first, shape, name_of(scheme));
        if (HasFatalFailure()) return;
        expect_exact(second, expanded_second, other_shape, name_of(other));
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Magnitudes all over the type's range, zeros, Inf and NaN, one with its payload in the lower bits.
void fill_plain(PlainTensor& x, RandomBits& random) {
  const int highest = x.view.dtype == DType::float16 ? 14 : 126;
  const int lowest = x.view.dtype == DType::float16 ? -20 : -126;
  x.fill([&](std::int64_t, std::int64_t row, std::int64_t) {
    const int top = lowest + 20 + static_cast<int>(row * 7919 % (highest - lowest - 20));
    const int kind = random.between(0, 60);
    if (kind == 0) return static_cast<double>(float_of(0x7F800001u));
    if (kind == 1) return static_cast<double>(float_of(0xFF800000u));
    if (kind < 10) return 0.0;
    return static_cast<double>(float_of(random.float_bits(std::max(top - 40, lowest), top)));
  });
}

TEST_F(CudaExpand, PlainOperandsAreTheSumsOfTheirParts) {
  RandomBits random(2);
  for (const DType dtype : all_dtypes) {
    for (const Shape& shape : shapes) {
      for (const int gap : {0, 3, 8}) {
        for (const bool misaligned : {false, true}) {
          PlainTensor x(dtype, shape, gap, gap);
          fill_plain(x, random);
          DevicePlainTensor device_x(x, misaligned);
          Expanded expanded(device_x.view());
          cuda::expand("expand", expanded.task(), {}, {});
          expanded.fetch();
          expect_exact(x, expanded, shape, name_of(dtype));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(CudaExpand, AlignedBfloat16IsTakenAsItLies) {
  const auto at = [](std::uintptr_t address, std::int64_t row_stride, std::int64_t columns = 24) {
    return GemmOperand(Buffer{reinterpret_cast<void*>(address),
                              DType::bfloat16,
                              {2, 4, columns},
                              row_stride,
                              4 * row_stride,
                              first_cuda_device});
  };
  EXPECT_TRUE(cuda::is_expanded(at(256, 24)));
  EXPECT_EQ(cuda::expanded_layout(at(256, 24)).bytes, 0);
  EXPECT_EQ(cuda::expanded_view(at(256, 24), nullptr).data, reinterpret_cast<void*>(256));
  EXPECT_FALSE(cuda::is_expanded(at(258, 24)));
  EXPECT_FALSE(cuda::is_expanded(at(256, 25)));
  EXPECT_TRUE(cuda::is_expanded(at(256, 24, 16)));
  EXPECT_FALSE(cuda::is_expanded(at(256, 24, 20)));  // the last row ends with its memory
  EXPECT_GT(cuda::expanded_layout(at(256, 25)).bytes, 0);
}

}  // namespace
}  // namespace mxkern
