// tests/cuda/operands/many_rows_test.cc: operands of so many short rows that their threads are more
// than 2^31.
#include <vector>

#include "cuda/operands/expand.h"
#include "cuda/operands/fold.h"
#include "mxkern/prepare_operand.h"
#include "tests/support/cuda/prepared.h"
#include "tests/support/cuda/hopper_test.h"

namespace mxkern {
namespace {

using namespace test;

constexpr std::int64_t columns = 32;

// Row r has codes and a scale that depend on r % 3.
struct Rows {
  explicit Rows(std::int64_t rows)
      : codes(static_cast<std::size_t>(rows * columns)), scales(static_cast<std::size_t>(rows)) {
    for (int i = 0; i < 3; ++i) {
      std::vector<std::uint8_t> code(columns, static_cast<std::uint8_t>(0x31 + i));
      fill(codes, code, i, rows, columns);
      fill(scales, {static_cast<std::uint8_t>(125 + i)}, i, rows, 1);
    }
    view = {Scheme::mxfp8_e4m3, {1, rows, columns}, ScaleLayout::row_major,
            codes.data(),       scales.data(),      nullptr,
            first_cuda_device};
  }

  DeviceBytes codes, scales;
  BlockScaled view;

 private:
  // Every third line from `first` on.
  static void fill(DeviceBytes& to, const std::vector<std::uint8_t>& line, std::int64_t first,
                   std::int64_t lines, std::int64_t bytes) {
    for (std::int64_t at = 0; at < bytes; ++at) {
      check_cuda(cudaMemset2D(to.data() + first * bytes + at, static_cast<std::size_t>(3 * bytes),
                              line[static_cast<std::size_t>(at)], 1,
                              static_cast<std::size_t>((lines - first + 2) / 3)));
    }
  }
};

std::vector<std::uint8_t> bytes_at(const std::uint8_t* data, std::int64_t offset,
                                   std::int64_t count) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
  check_cuda(cudaMemcpy(bytes.data(), data + offset, bytes.size(), cudaMemcpyDeviceToHost));
  return bytes;
}

using CudaManyRows = HopperTest;

TEST_F(CudaManyRows, AreFoldedAndExpanded) {
  constexpr std::int64_t rows = (std::int64_t{1} << 26) + 5;
  std::size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total));
  if (free < (std::size_t{14} << 30)) GTEST_SKIP() << "less than 14 GiB of memory are free";
  const Rows many(rows), few(3);
  for (const PreparedForm form : {PreparedForm::folded, PreparedForm::expanded}) {
    const DevicePrepared all(form, many.view), wanted(form, few.view);
    check_cuda(cudaDeviceSynchronize());
    const auto layout_of = [&](const BlockScaled& q) {
      return form == PreparedForm::folded ? cuda::folded_layout(q.shape)
                                          : cuda::expanded_layout(GemmOperand(q));
    };
    const cuda::RowScaledLayout layout = layout_of(many.view), small = layout_of(few.view);
    const std::int64_t written = columns * (form == PreparedForm::folded ? 1 : 2);
    const auto* data = static_cast<const std::uint8_t*>(all.operand.data);
    const auto* three = static_cast<const std::uint8_t*>(wanted.operand.data);
    for (const std::int64_t row : {std::int64_t{0}, std::int64_t{1} << 25, rows - 6, rows - 1}) {
      SCOPED_TRACE(testing::Message() << name_of(form) << ", row " << row);
      EXPECT_EQ(bytes_at(data, row * layout.row_bytes, written),
                bytes_at(three, row % 3 * small.row_bytes, written));
      EXPECT_EQ(bytes_at(data, layout.exponents + row * 4, 4),
                bytes_at(three, small.exponents + row % 3 * 4, 4));
    }
  }
}

}  // namespace
}  // namespace mxkern
