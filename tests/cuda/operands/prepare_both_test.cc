// tests/cuda/operands/prepare_both_test.cc: both directions of a tensor, quantized and folded on
// the device: the bytes of quantize_both and prepare_operand, and the spreads that the CPU finds.
#include "mxkern/prepare_both.h"

#include <cmath>
#include <vector>

#include "mxkern/mxkern.h"
#include "plan/core_rows.h"
#include "tests/support/cuda/grouped_product.h"
#include "tests/support/cuda/hopper_test.h"
#include "tests/support/cuda/stream.h"

namespace mxkern {
namespace {

using namespace test;

using CudaPrepareBoth = HopperTest;

// One side on the device.
struct Side {
  PreparedOperand operand;
  DeviceBytes data;
  DeviceCopy spreads;
  std::int64_t rows;

  Side(Scheme scheme, const Shape& shape)
      : data(prepared_bytes(PreparedForm::folded, scheme, shape)),
        spreads(std::vector<std::uint8_t>(static_cast<std::size_t>(shape.batch * shape.rows), 77)),
        rows(shape.batch * shape.rows) {
    operand.form = PreparedForm::folded;
    operand.source.scheme = scheme;
    operand.source.shape = shape;
    operand.source.device = first_cuda_device;
    operand.data = data.data();
    operand.bytes = prepared_bytes(PreparedForm::folded, scheme, shape);
  }

  // Elements and exponents.
  std::vector<std::uint8_t> folded() {
    const auto layout = cuda::folded_layout(operand.source.shape);
    std::vector<std::uint8_t> all(operand.bytes);
    check_cuda(cudaMemcpy(all.data(), operand.data, all.size(), cudaMemcpyDeviceToHost));
    std::vector<std::uint8_t> found;
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto* line = all.data() + row * layout.row_bytes;
      found.insert(found.end(), line, line + operand.source.shape.columns);
      const auto* exponent = all.data() + layout.exponents + row * 4;
      found.insert(found.end(), exponent, exponent + 4);
    }
    return found;
  }
};

TEST_F(CudaPrepareBoth, IsQuantizeBothFolded) {
  for (const Scheme scheme : {Scheme::mxfp8_e4m3, Scheme::mxfp8_e5m2, Scheme::mxfp6_e3m2,
                              Scheme::mxfp6_e2m3, Scheme::mxfp4}) {
    for (const Shape& shape :
         {Shape{1, 130, 200}, Shape{3, 32, 64}, Shape{1, 1, 1}, Shape{1, 512, 4096}}) {
      PlainTensor x(DType::bfloat16, shape, shape.columns % 8 * 3);
      const Values normal = normal_values(5);
      x.fill([&](std::int64_t b, std::int64_t r, std::int64_t k) {
        const auto kind = (r / 32 * 5 + k / 32 * 3 + b) % 11;
        return kind == 3 ? 0.0 : std::ldexp(normal(b, r, k), static_cast<int>(kind * 3 - 15));
      });
      const DevicePlainTensor device_x(x);
      Side rows(scheme, shape), columns(scheme, shape.transposed());
      const std::size_t bytes = prepare_both_workspace_bytes(rows.operand, columns.operand);
      DeviceBytes memory(bytes);
      const OwnedStream stream;
      check_cuda(cudaDeviceSynchronize());
      const OwnedGraph graph(stream, [&] {
        prepare_both(device_x.view(), rows.operand, columns.operand,
                     {rows.spreads.data(), columns.spreads.data()}, {}, {memory.data(), bytes},
                     stream);
      });
      graph.launch(stream);
      check_cuda(cudaStreamSynchronize(stream));
      QuantizedOperand q[2] = {{scheme, shape, ScaleLayout::row_major},
                               {scheme, shape.transposed(), ScaleLayout::row_major}};
      std::vector<std::uint8_t> spreads[2];
      for (auto& each : spreads) each.resize(4096);
      prepare_both(x.buffer(), {PreparedForm::source, q[0].quantized()},
                   {PreparedForm::source, q[1].quantized()}, {spreads[0].data(), spreads[1].data()},
                   {}, {});
      for (Side* side : {&rows, &columns}) {
        const int i = side == &rows ? 0 : 1;
        DeviceQuantizedOperand device_q(q[i]);
        Side wanted(scheme, side->operand.source.shape);
        wanted.operand.source = device_q.view();
        prepare_operand(device_q.view(), wanted.operand);
        check_cuda(cudaDeviceSynchronize());
        ASSERT_EQ(side->folded(), wanted.folded()) << name_of(scheme) << ", " << i;
        std::vector<std::uint8_t> found(static_cast<std::size_t>(side->rows));
        side->spreads.copy_to(found);
        spreads[i].resize(found.size());
        ASSERT_EQ(found, spreads[i]) << name_of(scheme) << ", " << i;
      }
    }
  }
}

}  // namespace
}  // namespace mxkern
