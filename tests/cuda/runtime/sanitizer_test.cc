// tests/cuda/runtime/sanitizer_test.cc: every kernel on a few small shapes, for runs under a memory
// checker.
#include "cuda/operands/upcast_operand.h"
#include "cuda/operands/expand.h"
#include "cuda/operands/fold.h"
#include "cuda/operands/gated_operands.h"
#include "cuda/gemm/portable.h"
#include "cuda/gemm/hopper/multiply.h"
#include "mxkern/mxkern.h"
#include "tests/support/compare_quantized.h"
#include "tests/support/cuda/memory.h"
#include "tests/support/cuda/operand.h"
#include "tests/support/cuda/hopper_test.h"
#include "tests/support/cuda/row_scaled_product.h"

namespace mxkern {
namespace {

using namespace test;

using CudaSanitizer = CudaTest;

const Shape shapes[] = {{1, 1, 1}, {2, 33, 48}, {1, 129, 160}, {1, 128, 128}};

// Rows, columns and both with options that are the same for both.
void quantize_all(Tensor& x, Scheme scheme, ScaleLayout layout, const QuantizeOptions& options) {
  const Shape turned = x.shape().transposed();
  Quantized rows(scheme, x.shape(), layout), columns(scheme, turned, layout);
  DeviceTensor device_x(x);
  DeviceQuantized device_rows(rows), device_columns(columns);
  QuantizeOptions with_rows = options, with_columns = options;
  with_rows.found_amax = device_rows.found_amax();
  with_columns.found_amax = device_columns.found_amax();
  const int size = options.hadamard.size;
  const bool has_rows = size == 0 || x.shape().columns % size == 0;
  const bool has_columns = size == 0 || turned.columns % size == 0;
  if (has_rows) {
    quantize(device_x.buffer(), device_rows.view(), with_rows);
    quantize(x.buffer(), rows.out(), options);
    ASSERT_TRUE(same_bytes(device_rows.on_host(), rows));
  }
  if (has_columns) {
    quantize_columns(device_x.buffer(), device_columns.view(), with_columns);
    quantize_columns(x.buffer(), columns.out(), options);
    ASSERT_TRUE(same_bytes(device_columns.on_host(), columns));
  }
  if (has_rows && has_columns) {
    quantize_both(device_x.buffer(), device_rows.view(), device_columns.view(), with_rows,
                  with_columns);
    ASSERT_TRUE(same_bytes(device_rows.on_host(), rows));
    ASSERT_TRUE(same_bytes(device_columns.on_host(), columns));
    Tensor out(x.dtype(), x.shape());
    DeviceTensor device_out(out);
    dequantize(device_rows.view(), device_out.buffer());
    check_cuda(cudaDeviceSynchronize());
  }
}

TEST_F(CudaSanitizer, Quantize) {
  int turn = 0;
  for (const Scheme scheme : all_schemes) {
    const bool nvfp4 = facts_of(scheme).has_tensor_scale;
    // Also rows whose octets take random words of two calls.
    for (const Shape& shape : {shapes[0], shapes[1], shapes[2], shapes[3], Shape{1, 33, 45}}) {
      for (int choice = 0; choice < 5; ++choice) {
        Tensor x(all_dtypes[turn % 3], shape);
        fill_mixed(x, static_cast<std::uint64_t>(++turn));
        QuantizeOptions options;
        if (choice == 1) options.rounding = Rounding::stochastic;
        if (choice == 2) options.block_shape = BlockShape::square;
        if (choice == 3) options.hadamard.size = turn % 2 == 0 ? 16 : 128;
        if (choice == 4 && nvfp4) {
          options.four_over_six = true;
          options.block_error = all_block_errors[turn % 2];
        }
        quantize_all(x, scheme, all_scale_layouts[turn % 2], options);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(CudaSanitizer, TheOthers) {
  for (const DType dtype : all_dtypes) {
    for (const int columns : {16, 128, 400}) {
      Tensor x(dtype, {2, 33, columns});
      fill_mixed(x, 1);
      DeviceTensor device_x(x);
      DeviceFloat amax, found;
      tensor_amax(device_x.buffer(), amax.address());
      random_hadamard(device_x.buffer(), device_x.buffer(), {columns == 128 ? 128 : 16});
      for (const Scheme scheme : {Scheme::mxfp8_e4m3, Scheme::nvfp4}) {
        for (int choice = 0; choice < 3; ++choice) {
          QuantizeOptions options{.found_amax = found.address()};
          if (choice == 1) options.block_shape = BlockShape::square;
          options.four_over_six = choice == 2 && facts_of(scheme).has_tensor_scale;
          fake_quantize(device_x.buffer(), scheme, device_x.buffer(), options);
        }
      }
      float wanted = 0.0f;
      tensor_amax(x.buffer(), &wanted);
      EXPECT_EQ(amax.value(), wanted);
    }
  }
  GuardedBytes scales(200 * 5), tiles(ScaleIndex{200, 5, ScaleLayout::swizzled}.size());
  DeviceTwin device_scales(scales), device_tiles(tiles);
  swizzle_scales(device_scales.data(), device_tiles.data(), 1, 200, 5, first_cuda_device);
  unswizzle_scales(device_tiles.data(), device_scales.data(), 1, 200, 5, first_cuda_device);
  check_cuda(cudaDeviceSynchronize());
}

// Operands of products, in one step and in two, and the product of one with itself.
TEST_F(CudaSanitizer, OperandsOfProducts) {
  int turn = 0;
  for (const Scheme scheme : all_schemes) {
    for (const Shape& shape : shapes) {
      Tensor x(all_dtypes[++turn % 3], shape);
      fill_mixed(x, static_cast<std::uint64_t>(turn), false);
      Quantized q(scheme, shape, all_scale_layouts[turn % 2]), written(q);
      Tensor out(DType::bfloat16, {shape.batch, shape.rows, shape.rows});
      quantize(x.buffer(), q.out());
      written.out();
      DeviceQuantized device_q(q), device_written(written);
      DeviceTensor device_x(x), device_out(out);
      if (cuda::fold_facts(scheme).can_fold) {
        DeviceBytes memory(static_cast<std::size_t>(cuda::folded_layout(shape).bytes));
        cuda::fold("fold", device_q.view(), memory.data(), {});
        cuda::quantize_folded("quantize_folded", device_x.buffer(), scheme, ScaleRule::rceil,
                              memory.data(), &device_written.view(), {});
        ASSERT_TRUE(same_bytes(device_written.on_host(), q));
        const cuda::RowScaled folded = cuda::folded_view(scheme, shape, memory.data());
        const GemmOperand codes(device_q.view());
        DeviceBytes expanded(static_cast<std::size_t>(cuda::expanded_layout(codes).bytes));
        for (const bool is_settled : {false, true}) {
          cuda::gated_operands("gated", {&codes, expanded.data()}, {},
                               {false, true, 255, 255, is_settled}, folded, folded, {});
        }
      }
      const GemmOperand left(device_x.buffer()), right(device_q.view());
      DeviceBytes left_memory(static_cast<std::size_t>(cuda::expanded_layout(left).bytes));
      DeviceBytes right_memory(static_cast<std::size_t>(cuda::expanded_layout(right).bytes));
      cuda::expand("expand", {&left, left_memory.data()}, {&right, right_memory.data()}, {});
      cuda::CoreFinish finish;
      finish.right_tensor_scale = device_q.view().tensor_scale;
      finish.out = device_out.buffer();
      cuda::multiply_portable("multiply", cuda::expanded_view(left, left_memory.data()),
                              cuda::expanded_view(right, right_memory.data()), finish, {}, {});
      check_cuda(cudaDeviceSynchronize());
    }
  }
}

// Rows that warps hold: all at once in lanes of four and eight octets, and more of them.
TEST_F(CudaSanitizer, QuantizedRowsInWarps) {
  for (const Shape& shape : {Shape{1, 40, 4128}, {1, 1200, 3104}, {1, 4300, 64}, {1, 2200, 2080}}) {
    Tensor x(DType::bfloat16, shape);
    fill_mixed(x, static_cast<std::uint64_t>(shape.rows));
    QuantizeOptions options;
    options.scale_rule = ScaleRule::rceil;
    Quantized wanted(Scheme::mxfp8_e4m3, shape, ScaleLayout::swizzled);
    Quantized codes(Scheme::mxfp8_e4m3, shape, ScaleLayout::swizzled);
    quantize(x.buffer(), wanted.out(), options);
    codes.out();
    DeviceTensor device_x(x);
    DeviceQuantized device_wanted(wanted), device_codes(codes);
    const auto bytes = static_cast<std::size_t>(cuda::folded_layout(shape).bytes);
    DeviceBytes at_once(bytes), in_two_steps(bytes);
    for (DeviceBytes* memory : {&at_once, &in_two_steps})
      check_cuda(cudaMemset(memory->data(), 0, bytes));
    cuda::quantize_folded("quantize_folded", device_x.buffer(), Scheme::mxfp8_e4m3,
                          options.scale_rule, at_once.data(), &device_codes.view(), {});
    cuda::fold("fold", device_wanted.view(), in_two_steps.data(), {});
    check_cuda(cudaDeviceSynchronize());
    EXPECT_TRUE(same_bytes(device_codes.on_host(), wanted)) << shape.rows;
    std::vector<std::uint8_t> got(bytes), folded(bytes);
    check_cuda(cudaMemcpy(got.data(), at_once.data(), bytes, cudaMemcpyDeviceToHost));
    check_cuda(cudaMemcpy(folded.data(), in_two_steps.data(), bytes, cudaMemcpyDeviceToHost));
    EXPECT_TRUE(got == folded) << shape.rows;
  }
}

// The kernels of both kinds of elements, with plain and with rare finishes, and a gate.
TEST_F(CudaSanitizer, RowScaledProducts) {
  if (!has_hopper_products()) GTEST_SKIP() << "the device or the build has no Hopper kernels";
  const RowScaledCase cases[] = {
      {.m = 130, .n = 136, .k = 300},
      {.m = 70, .n = 33, .k = 33, .beta = 0.5f},
      {.m = 8, .n = 264, .k = 1000, .dtype = DType::bfloat16},
      // Several tiles a thread block, of each size that has them, to outputs of every kind.
      {.m = 129, .n = 256 * 132, .k = 64, .dtype = DType::bfloat16},
      {.m = 129, .n = 256 * 132, .k = 33, .beta = 0.5f},
      {.m = 129, .n = 192 * 132, .k = 320, .dtype = DType::bfloat16},
      {.m = 129, .n = 192 * 132, .k = 64, .dtype = DType::float16, .beta = 0.5f},
      {.m = 256, .n = 128 * 330, .k = 64, .dtype = DType::float16},
      {.m = 256, .n = 128 * 330, .k = 64, .gap = 1}};
  for (const CoreElement element : {CoreElement::e4m3, CoreElement::bfloat16}) {
    for (RowScaledCase c : cases) {
      c.left = c.right = element;
      RowScaledProduct product(c);
      product.run_with(
          [](const cuda::RowScaled& a, const cuda::RowScaled& b, const CoreFinish& finish,
             const CoreGate& gate) { cuda::multiply_sm90("test", a, b, finish, gate, Stream{}); },
          {false, true, 8, 8}, 0);
    }
  }
}

// Codes that are decoded while they are multiplied, in several tiles a thread block.
TEST_F(CudaSanitizer, DecodedProducts) {
  if (!has_hopper_products()) GTEST_SKIP() << "the device or the build has no Hopper kernels";
  for (const std::int64_t k : {384, 400}) {
    const Shape shape{1, 129, k};
    QuantizedOperand host(Scheme::mxfp8_e4m3, shape, all_scale_layouts[k == 384 ? 0 : 1]);
    std::fill(host.codes.begin(), host.codes.end(), std::uint8_t{0x35});
    std::fill(host.scales.begin(), host.scales.end(), std::uint8_t{120});
    DeviceQuantizedOperand q(host);
    RowScaledOperand right(CoreElement::bfloat16, {1, 128 * 264, k}, 1);
    Tensor out(DType::bfloat16, {1, shape.rows, 128 * 264});
    DeviceTensor device_out(out);
    CoreFinish finish;
    finish.out = device_out.buffer();
    cuda::multiply_sm90("test", cuda::decoded_view(q.view()), right.on_device(), finish, {},
                        Stream{});
    check_cuda(cudaDeviceSynchronize());
  }
}

// Rows of one operand that the product itself expands, or folds, behind the first ones.
struct LateCase {
  std::int64_t m, n, k;
  bool left_is_late;
  std::int64_t first_rows;
  ScaleLayout layout;
  bool is_folded = false;
  std::int64_t first_columns = 0;
  bool decodes_other = false;  // the codes of the other operand, while it multiplies
};

struct LateProduct {
  LateCase c;
  QuantizedOperand host_a, host_b;
  DeviceQuantizedOperand a, b;

  explicit LateProduct(const LateCase& chosen)
      : c(chosen), host_a(operand(c.m, 1)), host_b(operand(c.n, 2)), a(host_a), b(host_b) {}

  QuantizedOperand operand(std::int64_t rows, std::uint64_t seed) const {
    QuantizedOperand made(Scheme::mxfp8_e4m3, {1, rows, c.k}, c.layout);
    RandomBits random(seed);
    for (auto& code : made.codes) code = static_cast<std::uint8_t>(random.between(0, 0x7E));
    for (auto& scale : made.scales) scale = static_cast<std::uint8_t>(random.between(110, 120));
    return made;
  }

  std::vector<std::uint8_t> bytes(bool has_late_rows) {
    const BlockScaled* sources[] = {&a.view(), &b.view()};
    const GemmOperand operands[] = {a.view(), b.view()};
    const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
    // Full of NaN, or rows from an earlier product may pass for ones that were made.
    const auto poisoned = [&](const GemmOperand& x) {
      const cuda::RowScaledLayout layout =
          c.is_folded ? cuda::folded_layout(shape_of(x)) : cuda::expanded_layout(x);
      return DeviceCopy(std::vector<std::uint8_t>(size(layout.bytes), std::uint8_t{0xFF}));
    };
    const auto view_of = [&](int side, DeviceCopy& to) {
      return c.is_folded ? cuda::folded_view(Scheme::mxfp8_e4m3, sources[side]->shape, to.data())
                         : cuda::expanded_view(operands[side], to.data());
    };
    DeviceCopy memory[] = {poisoned(operands[0]), poisoned(operands[1])};
    const int late = c.left_is_late ? 0 : 1;
    DeviceBytes progress(
        size(cuda::FirstRows::counters(c.first_rows, c.first_columns, sources[late]->shape) * 4));
    cuda::ExpandTask tasks[] = {{&operands[0], memory[0].data()}, {&operands[1], memory[1].data()}};
    cuda::RowScaled views[] = {view_of(0, memory[0]), view_of(1, memory[1])};
    if (has_late_rows) {
      const BlockScaled& q = *sources[late];
      tasks[late].first = {c.first_rows, reinterpret_cast<std::uint32_t*>(progress.data()),
                           c.is_folded && c.first_columns == 0, c.first_columns};
      views[late].late = {q.codes, q.scales, q.scale_index(), tasks[late].first,
                          cuda::expanded_exponent};
    }
    if (c.decodes_other) {
      tasks[1 - late] = {};
      views[1 - late] = cuda::decoded_view(*sources[1 - late]);
    }
    if (c.is_folded) {
      for (int i = 0; i < 2; ++i) {
        cuda::fold("fold", *sources[i], memory[i].data(), {}, kernels::Follows::behind, {},
                   tasks[i].first);
      }
    } else {
      cuda::expand("expand", tasks[0], tasks[1], {});
    }
    PlainTensor out(DType::bfloat16, {1, c.m, c.n});
    DevicePlainTensor device_out(out);
    CoreFinish finish;
    finish.out = device_out.view();
    cuda::multiply_sm90("test", views[0], views[1], finish, {}, Stream{});
    check_cuda(cudaDeviceSynchronize());
    device_out.copy_to(out);
    return out.bytes;
  }
};

// In one tile a thread block and in several, with clusters that have no tile, and with more columns
// than a warp has scales at a time. gemm does it from K = 4096 on, in products that are too large
// for a checker.
TEST_F(CudaSanitizer, LateRows) {
  if (!has_hopper_products()) GTEST_SKIP() << "the device or the build has no Hopper kernels";
  const LateCase cases[] = {
      {400, 250, 128, true, 128, ScaleLayout::row_major},
      {136, 400, 256, false, 256, ScaleLayout::swizzled},
      {270, 130, 4224, true, 128, ScaleLayout::swizzled},
      {129, 128 * 264, 128, false, 512, ScaleLayout::row_major},
      {129, 128 * 208, 128, false, 512, ScaleLayout::row_major},
      {400, 128 * 66, 128, true, 128, ScaleLayout::row_major, true},
      {390, 128 * 100, 128, true, 128, ScaleLayout::row_major, true},
      {390, 128 * 66, 4736, true, 128, ScaleLayout::swizzled, true},
      {400, 128 * 66, 128, false, 1024, ScaleLayout::swizzled, true},
      {390, 128 * 66, 4736, false, 1024, ScaleLayout::row_major, true},
      {390, 128 * 66, 4736, true, 128, ScaleLayout::swizzled, true, 2048},
      {390, 128 * 66, 2176, true, 256, ScaleLayout::row_major, true, 2048},
      {390, 128 * 66, 4224, false, 512, ScaleLayout::row_major, true, 2048},
      {600, 128 * 100, 128, true, 256, ScaleLayout::row_major, false, 0, true},
      {1200, 128 * 66, 4224, true, 512, ScaleLayout::swizzled, false, 0, true},
      {400, 128 * 200, 128, false, 512, ScaleLayout::row_major, false, 0, true}};
  for (const LateCase& c : cases) {
    LateProduct product(c);
    EXPECT_TRUE(product.bytes(true) == product.bytes(false))
        << "[" << c.m << ", " << c.k << "] x [" << c.n << ", " << c.k << "]";
  }
}

}  // namespace
}  // namespace mxkern
