// tests/cuda/gemm/gemm_test.cc: products through the public functions: the paths, prepared
// operands, the working memory, streams and graphs, and what is refused.
#include "mxkern/gemm.h"

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cuda/gemm/gemm.h"
#include "mxkern/core/error.h"
#include "mxkern/prepare_operand.h"
#include "tests/support/cuda/operand.h"
#include "tests/support/error_message.h"
#include "tests/support/gemm_reference.h"
#include "tests/support/cuda/hopper_test.h"

namespace mxkern {
namespace {

using namespace test;

// Operands on both sides, the product in double precision, and an output full of NaN.
struct Product {
  QuantizedOperand host_a, host_b;
  PlainTensor host_out;
  DeviceQuantizedOperand a, b;
  DevicePlainTensor out;

  static QuantizedOperand made(Scheme scheme, Shape shape, int seed) {
    QuantizedOperand operand(scheme, shape, all_scale_layouts[seed % 2]);
    operand.quantize(normal_values(static_cast<std::uint64_t>(seed)));
    return operand;
  }

  Product(Scheme left, Scheme right, Shape shape, std::int64_t n, DType dtype, int seed = 1)
      : host_a(made(left, shape, seed)),
        host_b(made(right, {shape.batch, n, shape.columns}, seed + 2)),
        host_out(dtype, {shape.batch, shape.rows, n}),
        a(host_a),
        b(host_b),
        out(host_out) {}

  void run(const GemmOperand& left, const GemmRightOperand& right, const GemmOptions& options = {},
           Stream stream = {}) {
    const std::size_t bytes = gemm_workspace_bytes(left, right, out.view(), options);
    DeviceBytes memory(bytes);
    gemm(left, right, out.view(), options, {memory.data(), bytes}, stream);
    check_cuda(cudaDeviceSynchronize());
  }

  // Of the sums, before they are rounded.
  ::testing::AssertionResult is_near(double limit) {
    out.copy_to(host_out);
    const Reference wanted = multiply(host_a, host_b, host_out);
    const double error = relative_error(host_out, wanted);
    PlainTensor rounded(host_out.view.dtype, host_out.view.shape);
    rounded.fill([&](std::int64_t batch, std::int64_t row, std::int64_t column) {
      return wanted.at(batch, row, column).value;
    });
    const double rounding = relative_error(rounded, wanted);
    if (error <= limit + rounding) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure()
           << name_of(host_a.view.scheme) << " x " << name_of(host_b.view.scheme) << " to "
           << name_of(host_out.view.dtype) << ": relative error " << error;
  }

  std::vector<std::uint8_t> bytes() {
    out.copy_to(host_out);
    return host_out.bytes;
  }
};

class CudaGemm : public CudaTest {
 protected:
  static bool is_hopper() { return has_hopper_products(); }
};

TEST_F(CudaGemm, EveryPairOfSchemes) {
  int seed = 0;
  for (const Scheme left : all_schemes) {
    for (const Scheme right : all_schemes) {
      for (const DType dtype : all_dtypes) {
        Product product(left, right, {2, 37, 161}, 45, dtype, ++seed);
        product.run(product.a.view(), product.b.view(), {.precision = GemmPrecision::exact});
        ASSERT_TRUE(product.is_near(2e-5));
        product.run(product.a.view(), product.b.view());
        ASSERT_TRUE(product.is_near(dtype == DType::float32 ? 2e-5 : 5e-4));
        if (!is_hopper() || left >= Scheme::mxint8 || right >= Scheme::mxint8) continue;
        product.run(product.a.view(), product.b.view(), {.precision = GemmPrecision::folded});
        ASSERT_TRUE(product.is_near(5e-4));
      }
    }
  }
}

TEST_F(CudaGemm, PreparedOperandsGiveTheSameBytes) {
  for (const Scheme scheme : all_schemes) {
    Product product(Scheme::mxfp8_e4m3, scheme, {2, 70, 160}, 90, DType::bfloat16);
    product.run(product.a.view(), product.b.view());
    const std::vector<std::uint8_t> wanted = product.bytes();
    for (const PreparedForm form : all_prepared_forms) {
      if (form == PreparedForm::folded && scheme >= Scheme::mxint8) continue;
      if (usable_prepared_form(form, scheme, first_cuda_device) != form) continue;
      const std::size_t size = prepared_bytes(form, scheme, product.b.view().shape);
      constexpr std::size_t alignment = 128;
      DeviceBytes memory(size + alignment);
      PreparedOperand ready{form, product.b.view(), size == 0 ? nullptr : memory.data() + alignment,
                            size};
      prepare_operand(product.b.view(), ready);
      product.run(product.a.view(), ready);
      if (form == PreparedForm::few_tokens) {  // another kernel, and another order of sums
        EXPECT_TRUE(product.is_near(2e-5));
        continue;
      }
      EXPECT_EQ(product.bytes(), wanted) << name_of(scheme) << ", " << name_of(form);
    }
  }
}

// What other GPUs take, on this one; with operands expanded ahead, too.
TEST_F(CudaGemm, AsOnAmpere) {
  const CudaGemmCapabilities ampere = capabilities_of("sm_80");
  int seed = 0;
  for (const Scheme left : all_schemes) {
    for (const Scheme right : all_schemes) {
      const DType dtype = all_dtypes[++seed % 3];
      Product product(left, right, {2, 37, 161}, 45, dtype, seed);
      const BlockScaled b = product.b.view();
      const std::size_t size = prepared_bytes(PreparedForm::expanded, right, b.shape);
      DeviceBytes data(size);
      PreparedOperand expanded{PreparedForm::expanded, b, data.data(), size};
      prepare_operand(b, expanded);
      for (const GemmRightOperand& operand : {GemmRightOperand(b), GemmRightOperand(expanded)}) {
        const CudaGemmPlan plan = plan_gemm_cuda(
            {product.a.view(), operand, product.out.view(), GemmPrecision::automatic}, ampere);
        ASSERT_EQ(plan.path, CudaGemmPath::portable);
        DeviceBytes memory(plan.workspace_bytes);
        cuda::gemm_as(ampere, product.a.view(), operand, product.out.view(), {},
                      {memory.data(), plan.workspace_bytes}, {});
        check_cuda(cudaDeviceSynchronize());
        ASSERT_TRUE(product.is_near(2e-5));
      }
    }
  }
}

// Plain operands of few rows and of more, from aligned and other addresses.
TEST_F(CudaGemm, PlainLeftOperands) {
  for (const DType dtype : all_dtypes) {
    for (const std::int64_t rows : {1, 3, 17, 64, 65, 300}) {
      QuantizedOperand host_b = Product::made(Scheme::mxfp4, {1, 77, 160}, static_cast<int>(rows));
      DeviceQuantizedOperand b(host_b);
      PlainTensor host_a(dtype, {1, rows, 160}, rows % 3), host_out(DType::float32, {1, rows, 77});
      host_a.fill(normal_values(static_cast<std::uint64_t>(rows)));
      for (const bool misaligned : {false, true}) {
        DevicePlainTensor a(host_a, misaligned), out(host_out);
        const std::size_t size = gemm_workspace_bytes(a.view(), b.view(), out.view());
        DeviceBytes memory(size);
        gemm(a.view(), b.view(), out.view(), {}, {memory.data(), size});
        check_cuda(cudaDeviceSynchronize());
        out.copy_to(host_out);
        EXPECT_LE(relative_error(host_out, multiply(host_a, host_b, host_out)), 2e-5)
            << name_of(dtype) << ", " << rows << " rows" << (misaligned ? ", misaligned" : "");
      }
    }
  }
}

// Only as much working memory is used as was asked for, wherever it lies and whatever it holds.
TEST_F(CudaGemm, TheWorkspaceIsKeptTo) {
  for (const GemmPrecision precision : all_gemm_precisions) {
    if (precision == GemmPrecision::folded && !is_hopper()) continue;
    Product product(Scheme::mxfp8_e4m3, Scheme::mxfp4, {1, 133, 288}, 77, DType::bfloat16);
    const GemmOptions options{.precision = precision};
    const std::size_t size =
        gemm_workspace_bytes(product.a.view(), product.b.view(), product.out.view(), options);
    std::vector<std::uint8_t> guarded(size + 512, 0xA5);
    DeviceCopy memory(guarded);
    gemm(product.a.view(), product.b.view(), product.out.view(), options,
         {memory.data() + 256, size});
    check_cuda(cudaDeviceSynchronize());
    ASSERT_TRUE(product.is_near(5e-4));
    memory.copy_to(guarded);
    for (std::size_t i = 0; i < 256; ++i) {
      ASSERT_EQ(guarded[i], 0xA5) << name_of(precision);
      ASSERT_EQ(guarded[guarded.size() - 1 - i], 0xA5) << name_of(precision);
    }
  }
}

TEST_F(CudaGemm, CapturedIntoAGraphAndWithoutWaiting) {
  cudaStream_t stream;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Product product(Scheme::mxfp8_e4m3, Scheme::mxfp8_e4m3, {1, 256, 512}, 256, DType::bfloat16);
  const std::size_t size =
      gemm_workspace_bytes(product.a.view(), product.b.view(), product.out.view());
  DeviceBytes memory(size);
  const auto run = [&] {
    gemm(product.a.view(), product.b.view(), product.out.view(), {}, {memory.data(), size},
         Stream{stream});
  };
  run();
  check_cuda(cudaDeviceSynchronize());
  const std::vector<std::uint8_t> wanted = product.bytes();
  std::atomic<bool> open = false;
  check_cuda(cudaLaunchHostFunc(
      stream,
      [](void* flag) {
        while (!static_cast<std::atomic<bool>*>(flag)->load()) {
        }
      },
      &open));
  run();
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady) << "the call waited";
  open = true;
  check_cuda(cudaStreamSynchronize(stream));
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  run();
  cudaGraph_t graph;
  check_cuda(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t executable;
  check_cuda(cudaGraphInstantiate(&executable, graph, 0));
  check_cuda(cudaMemset(product.out.view().data, 0xFF, wanted.size()));
  check_cuda(cudaGraphLaunch(executable, stream));
  check_cuda(cudaStreamSynchronize(stream));
  EXPECT_EQ(product.bytes(), wanted);
  check_cuda(cudaGraphExecDestroy(executable));
  check_cuda(cudaGraphDestroy(graph));
  check_cuda(cudaStreamDestroy(stream));
}

TEST_F(CudaGemm, TheCurrentDeviceIsRestored) {
  if (cuda_device_count() < 2) GTEST_SKIP() << "there is one CUDA device";
  Product product(Scheme::mxfp8_e4m3, Scheme::nvfp4, {1, 64, 96}, 64, DType::float32);
  const std::size_t size =
      gemm_workspace_bytes(product.a.view(), product.b.view(), product.out.view());
  DeviceBytes memory(size);
  check_cuda(cudaSetDevice(1));
  gemm(product.a.view(), product.b.view(), product.out.view(), {}, {memory.data(), size});
  int current = -1;
  check_cuda(cudaGetDevice(&current));
  EXPECT_EQ(current, 1);
  check_cuda(cudaSetDevice(0));
  check_cuda(cudaDeviceSynchronize());
  EXPECT_TRUE(product.is_near(2e-5));
}

// A call with good arguments, for a test to spoil; afterwards the good ones still work.
class CudaGemmErrors : public CudaGemm {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    product_.emplace(Scheme::mxfp8_e4m3, Scheme::nvfp4, Shape{1, 40, 96}, 24, DType::float32);
    left_ = product_->a.view();
    right_ = product_->b.view();
    out_ = product_->out.view();
    size_ = gemm_workspace_bytes(left_, right_, out_);
    memory_.emplace(size_ + 256);
    workspace_ = {memory_->data(), size_};
  }

  template <class Failure = InvalidArgument>
  void expect_failure(const std::string& says, const GemmOptions& options = {}) {
    test::expect_failure<Failure>(says, [&] { gemm(left_, right_, out_, options, workspace_); });
    ASSERT_NO_THROW(product_->run(product_->a.view(), product_->b.view()));
    EXPECT_TRUE(product_->is_near(2e-5));
  }

  std::optional<Product> product_;
  std::optional<DeviceBytes> memory_;
  BlockScaled left_, right_;
  Buffer out_;
  std::size_t size_ = 0;
  Workspace workspace_;
};

TEST_F(CudaGemmErrors, HostMemoryAsDeviceMemory) {
  const std::string host = " is said to lie on a CUDA device but points to host memory";
  left_.codes = product_->host_a.codes.data();
  expect_failure("a.codes" + host);
  left_ = product_->a.view();
  right_.scales = product_->host_b.scales.data();
  expect_failure("b.scales" + host);
  right_ = product_->b.view();
  right_.tensor_scale = &product_->host_b.tensor_scale;
  expect_failure("b.tensor_scale" + host);
  right_ = product_->b.view();
  out_.data = product_->host_out.bytes.data();
  expect_failure("out" + host);
  out_ = product_->out.view();
  alignas(256) static std::uint8_t memory[1 << 20];
  workspace_ = {memory, sizeof memory};
  expect_failure("workspace" + host);
}

TEST_F(CudaGemmErrors, Bias) {
  PlainTensor bias(DType::float32, {1, 1, 24});
  Buffer view = bias.buffer();
  GemmOptions options;
  options.bias = &view;
  expect_failure("bias is on cpu; expected cuda:0", options);
  view.device = first_cuda_device;
  expect_failure("bias is said to lie on a CUDA device", options);
}

TEST_F(CudaGemmErrors, Workspace) {
  workspace_.bytes = size_ - 1;
  expect_failure("expected at least " + std::to_string(size_));
  workspace_ = {memory_->data() + 16, size_};
  expect_failure("workspace is misaligned; expected an address that is a multiple of 256 bytes");
  workspace_ = {nullptr, size_};
  expect_failure("workspace is null");
}

TEST_F(CudaGemmErrors, ShapesDevicesAndOverlap) {
  right_.shape.columns = 64;
  expect_failure("a has K = 96 and b has K = 64");
  right_ = product_->b.view();
  right_.device = {};
  expect_failure("b is on cpu; expected cuda:0");
  right_ = product_->b.view();
  out_.data = left_.codes;
  expect_failure("out overlaps a.codes");
  out_ = product_->out.view();
  left_.device.index = right_.device.index = out_.device.index = 99;
  expect_failure<Unsupported>("CUDA failed to");
}

TEST_F(CudaGemmErrors, Precision) {
  const GemmOptions folded{.precision = GemmPrecision::folded};
  expect_failure("precision is folded, but b is nvfp4", folded);
  left_.scheme = Scheme::mxint8;
  expect_failure("precision is folded, but a is mxint8", folded);
}

TEST_F(CudaGemmErrors, PreparedOperands) {
  const BlockScaled q = product_->a.view();
  const std::size_t size = prepared_bytes(PreparedForm::expanded, q.scheme, q.shape);
  DeviceBytes memory(size);
  std::vector<std::uint8_t> host(size + 256);
  const auto says = [&](const PreparedOperand& ready) -> std::string {
    try {
      prepare_operand(q, ready);
      return "nothing";
    } catch (const std::exception& error) {
      return error.what();
    }
  };
  PreparedOperand ready{PreparedForm::expanded, q, memory.data(), size};
  EXPECT_EQ(says(ready), "nothing");
  ready.bytes = size - 1;
  EXPECT_NE(says(ready).find("bytes of data; expected"), std::string::npos) << says(ready);
  ready.bytes = size;
  auto address = reinterpret_cast<std::uintptr_t>(host.data());
  ready.data = reinterpret_cast<void*>((address + 255) / 256 * 256);
  EXPECT_NE(says(ready).find("points to host memory"), std::string::npos) << says(ready);
}

}  // namespace
}  // namespace mxkern
