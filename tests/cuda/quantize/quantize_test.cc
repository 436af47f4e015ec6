// tests/cuda/quantize/quantize_test.cc: quantizing on the device against the CPU, byte for byte.
#include <array>
#include <cmath>

#include "mxkern/mxkern.h"
#include "tests/support/cuda/expect_cpu_bytes.h"

namespace mxkern {
namespace {

using namespace test;

using CudaQuantize = CudaTest;

TEST_F(CudaQuantize, EveryOption) {
  const Shape shapes[] = {{1, 40, 70},  {2, 17, 65},  {1, 130, 33}, {1, 3, 260},
                          {1, 129, 16}, {1, 128, 64}, {3, 64, 128}, {1, 200, 136}};
  int turn = 0;
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : all_dtypes) {
      for_each_option(scheme, [&](const QuantizeOptions& options) {
        Tensor x(dtype, shapes[turn++ % std::size(shapes)]);
        fill_mixed(x, static_cast<std::uint64_t>(turn), turn % 3 != 0);
        for (const ScaleLayout layout : all_scale_layouts) {
          expect_cpu_bytes(x, {scheme, layout, options, options});
          if (HasFatalFailure()) return;
        }
      });
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(CudaQuantize, EveryShape) {
  int turn = 0;
  for (const Scheme scheme : all_schemes) {
    const int block = facts_of(scheme).block;
    for (const int rows : {0, 1, 2, block + 1, 127, 129}) {
      for (const int columns : {0, 1, block - 1, block, block + 1, 127, 128, 129, 300, 1040}) {
        const DType dtype = all_dtypes[turn % 3];
        const ScaleLayout layout = all_scale_layouts[turn++ % 2];
        Tensor x(dtype, {1, rows, columns});
        fill_mixed(x, static_cast<std::uint64_t>(turn));
        expect_cpu_bytes(x, {scheme, layout, {}, {}});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// What is quantized in registers: whole tiles of 16-bit elements, alone and with edges beside them.
TEST_F(CudaQuantize, WholeTiles) {
  const Shape shapes[] = {{1, 128, 128}, {2, 256, 384}, {1, 640, 256}, {1, 2112, 2240}};
  int turn = 0;
  for (const Scheme scheme : all_schemes) {
    for (const Shape& shape : shapes) {
      const bool large = shape.size() > 1 << 20;
      for_each_option(scheme, [&](const QuantizeOptions& options) {
        for (const int size : {0, 16, 32}) {
          if (size != 0 && options.block_shape == BlockShape::square) continue;
          if (large && (size == 32 || options.scale_rule != ScaleRule::rceil)) continue;
          for (const DType dtype : {DType::bfloat16, DType::float16}) {
            Tensor x(dtype, shape, turn++ % 5 == 0 ? 8 : 0);
            fill_mixed(x, static_cast<std::uint64_t>(turn), turn / 2 % 2 == 0);
            QuantizeOptions columns = options;
            columns.hadamard.size = size;
            if (turn / 2 % 4 == 0 && options.block_shape == BlockShape::row) columns.seed = 7;
            expect_cpu_bytes(x, {scheme, all_scale_layouts[turn / 2 % 2], options, columns});
            if (HasFatalFailure()) return;
          }
        }
      });
      if (HasFatalFailure()) return;
    }
  }
}

// Tiles of every type, rounded to nearest: whole, cut at the edges, of matrices with gaps, and
// where memory begins between the addresses that vectors ask for.
TEST_F(CudaQuantize, WholeTilesOfEveryType) {
  int turn = 0;
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : all_dtypes) {
      for (const Shape& shape : {Shape{1, 128, 128}, Shape{3, 256, 384}, Shape{1, 1416, 1384}}) {
        for (const ScaleLayout layout : all_scale_layouts) {
          for (const bool misaligned : {false, true}) {
            Tensor x(dtype, shape, turn % 3 == 0 ? 8 : 0);
            ++turn;
            fill_mixed(x, static_cast<std::uint64_t>(turn), turn % 2 == 0);
            expect_cpu_bytes(x, {scheme, layout, {}, {}, misaligned});
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// Plain tensors with edges, of so many whole tiles that these have a launch of their own beside
// those of the edges.
TEST_F(CudaQuantize, WholeTilesBesideEdges) {
  std::uint64_t turn = 0;
  for (const Scheme scheme : {Scheme::nvfp4, Scheme::mxfp4, Scheme::mxfp6_e2m3}) {
    for (const Shape& shape : {Shape{1, 3264, 3392}, Shape{3, 1216, 3392}}) {
      Tensor x(DType::bfloat16, shape);
      fill_mixed(x, turn, turn % 2 == 0);
      ++turn;
      expect_cpu_bytes(x, {scheme, ScaleLayout::swizzled, {}, {}});
      if (HasFatalFailure()) return;
    }
  }
}

// NVFP4: each direction may have a scale of the tensor of its own, given or found.
TEST_F(CudaQuantize, TensorScalesOfDirections) {
  Tensor x(DType::bfloat16, {1, 256, 128});
  fill_mixed(x, 3, false);
  DeviceTensor device_x(x);
  DeviceFloat amaxes[] = {DeviceFloat(3.0f), DeviceFloat(0.4375f)};
  const float values[] = {3.0f, 0.4375f};
  for (const bool given : {false, true}) {
    Quantized rows(Scheme::nvfp4, x.shape(), ScaleLayout::row_major);
    Quantized columns(Scheme::nvfp4, x.shape().transposed(), ScaleLayout::row_major);
    DeviceQuantized device_rows(rows), device_columns(columns);
    QuantizeOptions on_cpu[2], on_device[2];
    for (int i = 0; i < 2; ++i) {
      on_cpu[i].amax = given ? &values[i] : nullptr;
      on_device[i].amax = given ? amaxes[i].address() : nullptr;
    }
    on_device[0].found_amax = device_rows.found_amax();
    on_device[1].found_amax = device_columns.found_amax();
    quantize_both(x.buffer(), rows.out(), columns.out(), on_cpu[0], on_cpu[1]);
    quantize_both(device_x.buffer(), device_rows.view(), device_columns.view(), on_device[0],
                  on_device[1]);
    EXPECT_TRUE(same_bytes(device_rows.on_host(), rows)) << "given " << given;
    EXPECT_TRUE(same_bytes(device_columns.on_host(), columns)) << "given " << given;
    if (given) continue;
    float expected = 0.0f;
    tensor_amax(x.buffer(), &expected);
    for (int i = 0; i < 2; ++i) {
      float found = -1.0f;
      check_cuda(
          cudaMemcpy(&found, on_device[i].found_amax, sizeof(float), cudaMemcpyDeviceToHost));
      EXPECT_EQ(bits_of(found), bits_of(expected)) << "direction " << i;
    }
  }
}

TEST_F(CudaQuantize, HadamardTransforms) {
  const Shape shapes[] = {{1, 128, 128}, {2, 64, 256}, {1, 256, 48}, {1, 16, 384}, {1, 80, 32}};
  int turn = 0;
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : all_dtypes) {
      for (const int size : hadamard_sizes) {
        for (const Shape& shape : shapes) {
          Tensor x(dtype, shape);
          fill_mixed(x, static_cast<std::uint64_t>(++turn));
          QuantizeOptions with;
          with.hadamard.size = size;
          if (turn % 2 == 0) with.hadamard.signs = {0x0123456789ABCDEFu, 0xFEDCBA9876543210u};
          if (turn % 3 == 0) with.rounding = Rounding::stochastic;
          with.four_over_six = facts_of(scheme).has_tensor_scale && turn % 5 == 0;
          if (with.four_over_six) with.block_error = all_block_errors[turn % 2];
          QuantizeOptions without = with;
          without.hadamard = {};
          const ScaleLayout layout = all_scale_layouts[turn % 2];
          expect_cpu_bytes(x, {scheme, layout, with, with});
          expect_cpu_bytes(x, {scheme, layout, without, with});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Transforms whose sums overflow, are subnormal, or just are not: whose factor the scales of MX
// blocks cannot have, or which comes after the sums.
TEST_F(CudaQuantize, TransformsAtTheEndsOfTheRange) {
  for (const Scheme scheme : all_schemes) {
    for (const int highest : {-123, -110, -82, -79, -76, 118, 121, 122, 123, 124, 126}) {
      for (const float factor : {1.0f, 0x1p-8f}) {
        Tensor x(DType::bfloat16, {1, 128, 256});
        RandomBits random(static_cast<std::uint64_t>(highest + 200));
        x.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
          x.set(b, r, c, float_of(random.float_bits(highest - 3, highest)) * factor);
        });
        QuantizeOptions rows, columns;
        rows.rounding = columns.rounding =
            facts_of(scheme).has_tensor_scale ? all_roundings[highest % 2 != 0] : Rounding::nearest;
        columns.hadamard.size = 16;
        expect_cpu_bytes(x, {scheme, ScaleLayout::swizzled, rows, columns});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// NVFP4's transforms of whole tiles, rounded stochastically: lanes exchange their random words,
// unless each direction has its own.
TEST_F(CudaQuantize, TransformsWithRandomWords) {
  std::uint64_t turn = 0;
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    for (const Shape& shape : {Shape{1, 128, 128}, Shape{2, 256, 384}, Shape{1, 1280, 1664}}) {
      for (const ScaleLayout layout : all_scale_layouts) {
        for (const bool one_seed : {true, false}) {
          Tensor x(dtype, shape, turn % 3 == 0 ? 8 : 0);
          ++turn;
          fill_mixed(x, turn, turn % 2 == 0);
          QuantizeOptions rows, columns;
          rows.rounding = columns.rounding = Rounding::stochastic;
          rows.seed = 0x123456789ABCDEFu;
          columns.seed = one_seed ? rows.seed : 7;
          columns.hadamard.size = 16;
          if (turn % 2 == 0) columns.hadamard.signs = {0x0123456789ABCDEFu, 0xFEDCBA9876543210u};
          expect_cpu_bytes(x, {Scheme::nvfp4, layout, rows, columns});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// So many tiles that thread blocks take groups of them, whose row-major scales they store together:
// of 2, 4, 8 and 16 on a device of 132 multiprocessors, 1 to 4 across and down.
TEST_F(CudaQuantize, GroupsOfTiles) {
  std::uint64_t turn = 0;
  for (const Shape& shape : {Shape{1, 2816, 3072}, Shape{2, 2816, 1536}, Shape{1, 4224, 4096},
                             Shape{1, 4096, 8448}, Shape{1, 8448, 4096}, Shape{1, 6144, 11264}}) {
    for (const bool random : {false, true}) {
      Tensor x(DType::bfloat16, shape);
      ++turn;
      fill_mixed(x, turn, turn % 2 == 0);
      QuantizeOptions rows, columns;
      if (random) {
        rows.rounding = columns.rounding = Rounding::stochastic;
        columns.hadamard.size = 16;
      }
      expect_cpu_bytes(x, {Scheme::nvfp4, ScaleLayout::row_major, rows, columns});
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(CudaQuantize, GapsAndMisalignedMemory) {
  int turn = 0;
  for (const Scheme scheme : all_schemes) {
    for (const DType dtype : all_dtypes) {
      for (const Shape& shape : {Shape{1, 33, 100}, Shape{3, 20, 64}, Shape{2, 130, 136}}) {
        for (const std::int64_t gap : {0, 1, 3, 8}) {
          Tensor x(dtype, shape, gap);
          fill_mixed(x, static_cast<std::uint64_t>(++turn));
          const ScaleLayout layout = all_scale_layouts[turn % 2];
          for (const bool misaligned : {false, true}) {
            expect_cpu_bytes(x, {scheme, layout, {}, {}, misaligned});
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_F(CudaQuantize, GivenAmaxAndTensorScale) {
  for (const float value : {1e-40f, 0x1p-149f, 0.37f, 6.0f, 2688.0f, 1e5f, 3.4e38f}) {
    for (const Shape& shape : {Shape{1, 70, 90}, Shape{1, 128, 256}}) {
      Tensor x(DType::bfloat16, shape);
      fill_mixed(x, bits_of(value));
      expect_cpu_bytes(x, {Scheme::nvfp4}, {.amax = value});
      expect_cpu_bytes(x, {Scheme::nvfp4}, {.tensor_scale = value});
      if (HasFatalFailure()) return;
    }
  }
}

// NVFP4 in half precision: tensors of many scales, with blocks that are not rare, which they are in
// mixed ones.
TEST_F(CudaQuantize, BlocksThatAreNotRare) {
  for (int turn = 0; turn < 64; ++turn) {
    Tensor x(DType::bfloat16, {1, 128, 256});
    std::uint32_t state = 12345u + static_cast<std::uint32_t>(turn);
    x.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
      state = state * 1664525u + 1013904223u;
      // A sign, four binades and all significands; below them some zeros.
      const std::uint32_t bits =
          (state >> 31) << 15 | ((123u + (state >> 28 & 3u)) << 7) | (state >> 16 & 0x7Fu);
      x.set(b, r, c, state % 97 == 0 ? 0.0f : float_of(bits << 16));
    });
    const float amax = (128.0f + 2.0f * static_cast<float>(turn)) / 64.0f;
    QuantizeOptions columns;
    columns.hadamard.size = turn % 2 == 0 ? 16 : 0;
    expect_cpu_bytes(x, {Scheme::nvfp4, all_scale_layouts[turn % 2], {}, columns},
                     {.amax = std::ldexp(amax, turn % 7 - 1)});
    if (HasFatalFailure()) return;
  }
}

// One value everywhere: each kind of value meets each rule, without neighbours that hide it.
TEST_F(CudaQuantize, ExtremeValues) {
  const float values[] = {0.0f,      -0.0f,       0x1p-149f, 0x1.8p-149f, 0x1p-133f,
                          0x1p-126f, 0x1.fp-127f, 448.0f,    449.0f,      6.0f,
                          1.75f,     0x1.8p100f,  3.38e38f,  -65504.0f,   0x1.FFp15f};
  for (const Scheme scheme : all_schemes) {
    for (const float value : values) {
      for (const DType dtype : all_dtypes) {
        Tensor x(dtype, {1, 33, 40});
        int i = 0;
        x.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) {
          x.set(b, r, c, i++ % 3 == 0 ? -value : value);
        });
        for (const ScaleRule rule : all_scale_rules) {
          if (facts_of(scheme).has_tensor_scale && rule != ScaleRule::rceil) continue;
          QuantizeOptions options;
          options.scale_rule = rule;
          expect_cpu_bytes(x, {scheme, ScaleLayout::row_major, options, options});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_F(CudaQuantize, ASingleNanOrInfPoisonsItsBlockAlone) {
  for (const Scheme scheme : all_schemes) {
    const SchemeFacts facts = facts_of(scheme);
    for (const std::uint32_t bits : {0x7F800000u, 0xFF800000u, 0x7FC00000u, 0xFFFFFFFFu}) {
      Tensor x(DType::float32, {1, 20, 128});
      x.for_each([&](std::int64_t b, std::int64_t r, std::int64_t c) { x.set(b, r, c, 1.0f); });
      x.set(0, 7, 37, float_of(bits));
      Quantized host(scheme, x.shape(), ScaleLayout::row_major);
      DeviceTensor device_x(x);
      DeviceQuantized out(host);
      QuantizeOptions options;
      options.found_amax = out.found_amax();
      quantize(device_x.buffer(), out.view(), options);
      const Quantized found = out.on_host();
      const ScaleIndex index = found.view.scale_index();
      for (std::int64_t i = 0; i < found.scales.size(); ++i) {
        const ScaleCoordinate at = index.coordinate(i);
        const bool poisoned = at.row == 7 && at.block == 37 / facts.block;
        EXPECT_EQ(found.scales.data()[i] == facts.nan_scale, poisoned)
            << facts.name << " row " << at.row << ", block " << at.block << ": "
            << show_code(found.scales.data()[i]) << " for " << show_bits(bits);
      }
    }
  }
}

TEST_F(CudaQuantize, EachDirectionHasARoundingOfItsOwn) {
  for (const Scheme scheme : all_schemes) {
    for (int choice = 0; choice < 4; ++choice) {
      Tensor x(DType::bfloat16, {1, 256, 256});
      fill_mixed(x, 31);
      QuantizeOptions rows, columns;
      rows.block_shape = columns.block_shape = all_block_shapes[choice % 2];
      rows.rounding = all_roundings[choice / 2], columns.rounding = all_roundings[1 - choice / 2];
      rows.seed = columns.seed = 9;
      expect_cpu_bytes(x, {scheme, ScaleLayout::row_major, rows, columns});
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace mxkern
