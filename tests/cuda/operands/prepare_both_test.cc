// tests/cuda/operands/prepare_both_test.cc: both directions of a tensor, quantized and folded on
// the device: the bytes of quantize_both and prepare_operand, and the spreads that the CPU finds.
#include "mxkern/prepare_both.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "mxkern/mxkern.h"
#include "plan/core_rows.h"
#include "plan/prepare_both.h"
#include "tests/support/cuda/hopper_test.h"
#include "tests/support/cuda/stream.h"

namespace mxkern {
namespace {

using namespace test;

using CudaPrepareBoth = HopperTest;

// One side on the device.
struct Side {
  PreparedOperand operand;
  DeviceCopy data;
  DeviceCopy spreads;
  std::int64_t rows;

  Side(Scheme scheme, const Shape& shape)
      : data(std::vector<std::uint8_t>(prepared_bytes(PreparedForm::folded, scheme, shape), 0xA5)),
        spreads(std::vector<std::uint8_t>(static_cast<std::size_t>(shape.batch * shape.rows), 77)),
        rows(shape.batch * shape.rows) {
    operand.form = PreparedForm::folded;
    operand.source.scheme = scheme;
    operand.source.shape = shape;
    operand.source.device = first_cuda_device;
    operand.data = data.data();
    operand.bytes = prepared_bytes(PreparedForm::folded, scheme, shape);
  }

  // Elements, exponents and spreads.
  std::vector<std::uint8_t> folded() {
    const auto layout = cuda::folded_layout(operand.source.shape);
    std::vector<std::uint8_t> all(operand.bytes);
    data.copy_to(all);
    std::vector<std::uint8_t> found;
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto* line = all.data() + row * layout.row_bytes;
      found.insert(found.end(), line, line + operand.source.shape.columns);
      const auto* exponent = all.data() + layout.exponents + row * 4;
      found.insert(found.end(), exponent, exponent + 4);
      found.push_back(all[static_cast<std::size_t>(layout.spreads + row)]);
    }
    return found;
  }
};

// Both sides of a tensor, and the working memory, which holds what it may.
struct Both {
  DevicePlainTensor x;
  Side rows, columns;
  DeviceCopy memory;
  std::size_t bytes;

  Both(Scheme scheme, PlainTensor& host, bool misaligned = false)
      : x(host, misaligned),
        rows(scheme, host.view.shape),
        columns(scheme, host.view.shape.transposed()),
        memory(std::vector<std::uint8_t>(size() + 1, 0xFF)),
        bytes(size()) {}

  std::size_t size() const { return prepare_both_workspace_bytes(rows.operand, columns.operand); }

  void prepare(ScaleRule rule, Stream stream) {
    QuantizeOptions options;
    options.scale_rule = rule;
    prepare_both(x.view(), rows.operand, columns.operand,
                 {rows.spreads.data(), columns.spreads.data()}, options, {memory.data(), bytes},
                 stream);
  }
};

// By a graph that is launched twice: it finds what it has left the first time.
void expect_both(Scheme scheme, PlainTensor& x, ScaleRule rule, bool misaligned = false) {
  const std::string name = std::string(name_of(scheme)) + ", " + name_of(x.view.dtype) + ", " +
                           std::to_string(x.view.shape.rows) + " x " +
                           std::to_string(x.view.shape.columns) + ", " + name_of(rule);
  const Shape& shape = x.view.shape;
  Both both(scheme, x, misaligned);
  const OwnedStream stream;
  check_cuda(cudaDeviceSynchronize());
  const OwnedGraph graph(stream, [&] { both.prepare(rule, stream); });
  for (int launch = 0; launch < 2; ++launch) graph.launch(stream);
  check_cuda(cudaStreamSynchronize(stream));
  QuantizedOperand q[2] = {{scheme, shape, ScaleLayout::row_major},
                           {scheme, shape.transposed(), ScaleLayout::row_major}};
  std::vector<std::uint8_t> spreads[2];
  for (int i = 0; i < 2; ++i) {
    spreads[i].resize(static_cast<std::size_t>(i == 0 ? both.rows.rows : both.columns.rows));
  }
  QuantizeOptions options;
  options.scale_rule = rule;
  prepare_both(x.buffer(), {PreparedForm::source, q[0].quantized()},
               {PreparedForm::source, q[1].quantized()}, {spreads[0].data(), spreads[1].data()},
               options, {});
  for (Side* side : {&both.rows, &both.columns}) {
    const int i = side == &both.rows ? 0 : 1;
    DeviceQuantizedOperand device_q(q[i]);
    Side wanted(scheme, side->operand.source.shape);
    wanted.operand.source = device_q.view();
    prepare_operand(device_q.view(), wanted.operand);
    check_cuda(cudaDeviceSynchronize());
    const auto got = side->folded(), expected = wanted.folded();
    for (std::size_t at = 0; at < got.size(); ++at) {
      const auto line_bytes = static_cast<std::size_t>(side->operand.source.shape.columns + 5);
      ASSERT_EQ(int{got[at]}, int{expected[at]}) << name << (i == 0 ? ": row " : ": column ")
                                                 << at / line_bytes << ", byte " << at % line_bytes;
    }
    std::vector<std::uint8_t> found(spreads[i].size());
    side->spreads.copy_to(found);
    ASSERT_EQ(found, spreads[i]) << name << (i == 0 ? ": rows" : ": columns");
  }
}

// Blocks at distances of up to 40 octaves, as many as float16 has, of both zeros, of subnormals,
// with NaN and Inf.
Values wild(DType dtype) {
  const Values normal = normal_values(5);
  const bool narrow = dtype == DType::float16;
  return [=](std::int64_t b, std::int64_t r, std::int64_t k) {
    const auto kind = (r / 32 * 5 + k / 32 * 3 + b) % 13;
    if (kind == 3) return (r + k) % 2 == 0 ? 0.0 : -0.0;
    if (kind == 7 && r % 32 == 1 && k % 32 == 2) return std::nan("");
    if (kind == 8 && r % 32 == 5 && k % 32 == 9) return -std::numeric_limits<double>::infinity();
    if (kind == 9) return std::ldexp(normal(b, r, k), narrow ? -22 : -130);
    return std::ldexp(normal(b, r, k), static_cast<int>(kind) * (narrow ? 2 : 4) - 16);
  };
}

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
      expect_both(scheme, x, ScaleRule::rceil);
      if (HasFatalFailure()) return;
    }
  }
}

// Whole tiles, parts of tiles and of blocks, batches, rows with gaps; then what other kernels take.
TEST_F(CudaPrepareBoth, TilesOfAnything) {
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    for (const ScaleRule rule : all_scale_rules) {
      for (const Shape& shape : {Shape{1, 128, 128}, Shape{2, 33, 264}, Shape{1, 1, 8},
                                 Shape{3, 129, 136}, Shape{1, 417, 384}}) {
        PlainTensor x(dtype, shape, shape.rows % 2 * 8);
        x.fill(wild(dtype));
        expect_both(Scheme::mxfp8_e4m3, x, rule);
        if (HasFatalFailure()) return;
      }
    }
    PlainTensor odd(dtype, {1, 96, 130}), moved(dtype, {1, 64, 128});
    odd.fill(wild(dtype));
    expect_both(Scheme::mxfp8_e4m3, odd, ScaleRule::rceil);
    moved.fill(wild(dtype));
    expect_both(Scheme::mxfp8_e4m3, moved, ScaleRule::rceil, true);
  }
  PlainTensor wide(DType::float32, {1, 96, 256});
  wide.fill(wild(DType::float32));
  expect_both(Scheme::mxfp8_e4m3, wide, ScaleRule::rceil);
}

// More tiles than the device holds thread blocks, and more elements than its cache; then parts of
// tiles as well.
TEST_F(CudaPrepareBoth, ManyTiles) {
  const Values normal = normal_values(5);
  std::vector<double> few(4099);
  for (std::size_t i = 0; i < few.size(); ++i) few[i] = normal(0, 0, static_cast<std::int64_t>(i));
  const auto values = [&](std::int64_t b, std::int64_t r, std::int64_t k) {
    const auto at = static_cast<std::size_t>(b * 77 + r * 8192 + k);
    return std::ldexp(few[at % few.size()], static_cast<int>((r / 32 + k / 32 + b) % 9));
  };
  PlainTensor whole(DType::bfloat16, {1, 4096, 8192}), parts(DType::float16, {2, 1500, 4232}, 8);
  for (PlainTensor* x : {&whole, &parts}) {
    x->fill(values);
    expect_both(Scheme::mxfp8_e4m3, *x, ScaleRule::rceil);
    if (HasFatalFailure()) return;
  }
}

// Working memory that suffices for one way is enough for the other one.
TEST_F(CudaPrepareBoth, WorkingMemoryOfEitherWay) {
  for (const Shape& shape : {Shape{1, 1, 1}, Shape{2, 33, 264}, Shape{1, 512, 512}}) {
    PlainTensor x(DType::bfloat16, shape);
    x.fill(normal_values(1));
    const Both both(Scheme::mxfp8_e4m3, x);
    const BlockScaled& q = both.columns.operand.source;
    const auto sizes = BlockScaled::sizes(q.scheme, q.shape, ScaleLayout::row_major);
    EXPECT_GE(both.bytes, cuda::both_tiles_bytes(shape));
    EXPECT_GE(both.bytes, static_cast<std::size_t>(sizes.codes + sizes.scales));
  }
}

// A product of both results launches its kernel, and no other.
TEST_F(CudaPrepareBoth, ProductsOnlyMultiply) {
  const Shape shape{1, 384, 512};
  PlainTensor host[2] = {PlainTensor(DType::bfloat16, shape), PlainTensor(DType::bfloat16, shape)};
  for (int i = 0; i < 2; ++i) host[i].fill(normal_values(static_cast<std::uint64_t>(i)));
  Both a(Scheme::mxfp8_e4m3, host[0]), b(Scheme::mxfp8_e4m3, host[1]);
  GemmOptions options;
  options.precision = GemmPrecision::folded;
  const OwnedStream stream;
  check_cuda(cudaDeviceSynchronize());
  for (Both* both : {&a, &b}) both->prepare(ScaleRule::rceil, stream);
  for (const bool along_rows : {true, false}) {
    const PreparedOperand& left = along_rows ? a.rows.operand : a.columns.operand;
    const PreparedOperand& right = along_rows ? b.rows.operand : b.columns.operand;
    const std::int64_t extent = left.source.shape.rows;
    PlainTensor before(DType::bfloat16, {1, extent, extent});
    DevicePlainTensor out(before);
    ASSERT_EQ(gemm_workspace_bytes(left, right, out.view(), options), 0u);
    const OwnedGraph graph(stream, [&] { gemm(left, right, out.view(), options, {}, stream); });
    EXPECT_EQ(graph.nodes(), 1u);
    graph.launch(stream);
    check_cuda(cudaStreamSynchronize(stream));
    PlainTensor got = before;
    out.copy_to(got);
    // The bytes of the product of codes and scales.
    const Shape side = left.source.shape;
    QuantizedOperand q[2] = {{Scheme::mxfp8_e4m3, side, ScaleLayout::row_major},
                             {Scheme::mxfp8_e4m3, side, ScaleLayout::row_major}};
    for (int i = 0; i < 2; ++i) {
      along_rows ? quantize(host[i].buffer(), q[i].quantized())
                 : quantize_columns(host[i].buffer(), q[i].quantized());
    }
    DeviceQuantizedOperand device_a(q[0]), device_b(q[1]);
    EXPECT_EQ(got.bytes, product(device_a.view(), device_b.view(), before, options));
  }
}

}  // namespace
}  // namespace mxkern
