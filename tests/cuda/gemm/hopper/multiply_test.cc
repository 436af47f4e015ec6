// tests/cuda/gemm/hopper/multiply_test.cc: the Hopper product of row-scaled matrices against
// float64 sums.
#include "cuda/gemm/hopper/multiply.h"

#include <cmath>
#include <limits>

#include "mxkern/core/error.h"
#include "tests/support/error_message.h"
#include "tests/support/cuda/hopper_product.h"

namespace mxkern {
namespace {

using namespace test;
constexpr std::pair<CoreElement, CoreElement> element_pairs[] = {
    {CoreElement::e4m3, CoreElement::e4m3},
    {CoreElement::e4m3, CoreElement::e5m2},
    {CoreElement::e5m2, CoreElement::e4m3},
    {CoreElement::e5m2, CoreElement::e5m2},
    {CoreElement::bfloat16, CoreElement::bfloat16}};

using Case = RowScaledCase;

void expect_right(const Case& c) {
  Product product(c);
  product.run();
  product.expect_right();
  if (!::testing::Test::HasFatalFailure()) product.expect_gaps();
}

TEST_F(MultiplySm90, Shapes) {
  const Case shapes[] = {{.m = 1, .n = 1, .k = 1},
                         {.m = 128, .n = 128, .k = 128},
                         {.m = 256, .n = 256, .k = 256},
                         {.m = 1, .n = 8, .k = 32},
                         {.m = 129, .n = 136, .k = 33},
                         {.m = 300, .n = 264, .k = 96},
                         {.m = 63, .n = 65, .k = 160},
                         {.m = 257, .n = 129, .k = 640},
                         {.batch = 3, .m = 130, .n = 72, .k = 200},
                         {.m = 520, .n = 512, .k = 1100}};
  int turn = 0;
  for (const auto& [left, right] : element_pairs) {
    for (Case c : shapes) {
      c.left = left;
      c.right = right;
      c.dtype = all_dtypes[++turn % 3];
      if (c.dtype == DType::float16) c.exponents = 2;
      expect_right(c);
      if (HasFatalFailure()) return;
    }
  }
}

// As many tiles as it takes to have each of them chosen.
TEST_F(MultiplySm90, EveryTile) {
  int processors = 0;
  check_cuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  int turn = 0;
  for (const auto& [columns, m] : {std::pair{64, 100}, {128, 100}, {192, 129}, {256, 129}}) {
    for (const auto& [left, right] : element_pairs) {
      for (const std::int64_t missing : {8, 9}) {
        Case c{.left = left, .right = right, .m = m, .n = columns * processors - missing};
        c.k = 100 + 60 * (turn % 8);  // every number of steps modulo the stages
        c.dtype = ++turn % 2 ? DType::bfloat16 : DType::float32;
        c.exponents = turn % 3 ? 6 : 0;
        const cuda::TileSm90 tile = cuda::tile_sm90(left, right, 1, c.m, c.n, c.k, processors);
        ASSERT_EQ(tile.columns, columns);
        Product product(c);
        product.run();
        product.expect_right(columns == 64 ? 1 : 997);
        product.expect_gaps();
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Tiles of a product have as many rows as it takes, a multiple of 16.
TEST_F(MultiplySm90, RowsOfTiles) {
  for (const auto& [left, right] : element_pairs) {
    for (const std::int64_t m : {1, 16, 17, 64, 112, 113, 129, 160, 191, 257, 300, 520}) {
      for (const std::int64_t n : {72, 520}) {
        expect_right({.left = left, .right = right, .batch = 2, .m = m, .n = n, .k = 1100});
        if (HasFatalFailure()) return;
      }
    }
  }
}

// The last cluster has a tile that is not there.
TEST_F(MultiplySm90, OddNumbersOfTiles) {
  int processors = 0;
  check_cuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  for (const auto& [left, right] : element_pairs) {
    for (const auto& [m, n] : {std::pair{1600, 2304}, {60, 64 * 13}}) {
      for (const DType dtype : {DType::bfloat16, DType::float32}) {
        const Case c{.left = left, .right = right, .m = m, .n = n, .k = 300, .dtype = dtype};
        const cuda::TileSm90 tile = cuda::tile_sm90(left, right, 1, m, n, c.k, processors);
        ASSERT_EQ(tile.cluster, 2);
        ASSERT_EQ(ceil_div(m, tile.rows) * ceil_div(n, tile.columns) % 2, 1);
        Product product(c);
        product.run();
        product.expect_right(97);
        product.expect_gaps();
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(MultiplySm90, OutputsOfEveryKind) {
  for (const CoreElement element : {CoreElement::e4m3, CoreElement::bfloat16}) {
    for (const DType dtype : all_dtypes) {
      for (const std::int64_t gap : {0, 1, 8}) {
        for (const bool misaligned : {false, true}) {
          for (const std::int64_t n : {70, 136}) {
            expect_right({.left = element,
                          .right = element,
                          .batch = 2,
                          .m = 140,
                          .n = n,
                          .k = 64,
                          .dtype = dtype,
                          .gap = gap,
                          .misaligned = misaligned,
                          .exponents = 2});
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST_F(MultiplySm90, EverythingThatIsAdded) {
  for (const CoreElement element : {CoreElement::e4m3, CoreElement::bfloat16}) {
    for (const DType dtype : all_dtypes) {
      for (const std::int64_t n : {72, 129}) {
        Case c{.left = element,
               .right = element,
               .m = 200,
               .n = n,
               .k = 160,
               .dtype = dtype,
               .exponents = 2};
        c.alpha = -0.7f;
        c.bias = dtype == DType::float32 ? DType::float16 : DType::float32;
        expect_right(c);
        c.bias = DType::bfloat16;
        c.beta = 0.5f;
        c.left_tensor_scale = 0.37f;
        expect_right(c);
        c.alpha = 0.0f;
        c.right_tensor_scale = 1.7f;
        expect_right(c);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// A thread block has two or three tiles, whose outputs come to the same places one after the other.
TEST_F(MultiplySm90, AddsToManyTiles) {
  int processors = 0;
  check_cuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  const std::int64_t m = 2 * 128 * processors + 100, k = 64;
  for (const auto& [columns, n] : {std::pair{64, 56}, {128, 120}, {192, 184}, {256, 1016}}) {
    const CoreElement element = columns == 256 ? CoreElement::bfloat16 : CoreElement::e4m3;
    ASSERT_EQ(cuda::tile_sm90(element, element, 1, m, n, k, processors).columns, columns);
    for (const DType dtype : all_dtypes) {
      Case c{.left = element, .right = element, .m = m, .n = n, .k = k, .dtype = dtype};
      c.alpha = 0x1p-10f;  // lest a half overflows
      c.beta = 0.5f;
      Product product(c);
      product.run();
      product.expect_right(10007);
      product.expect_gaps();
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(MultiplySm90, OneRightMatrixForAll) {
  for (const CoreElement element : {CoreElement::e5m2, CoreElement::bfloat16}) {
    expect_right({.left = element,
                  .right = element,
                  .batch = 3,
                  .m = 150,
                  .n = 264,
                  .k = 96,
                  .right_batch = 1});
  }
}

TEST_F(MultiplySm90, PartsOfTheLeftOperand) {
  for (const int parts : {2, 3}) {
    expect_right({.left = CoreElement::bfloat16,
                  .right = CoreElement::bfloat16,
                  .batch = 2,
                  .m = 130,
                  .n = 200,
                  .k = 100,
                  .parts = parts});
  }
}

// Exponents that no float32 holds, whose sum it does; and sums beyond it, to Inf and to zero.
TEST_F(MultiplySm90, ExtremeExponents) {
  Case c{.m = 140, .n = 136, .k = 64, .exponents = 1};
  for (const CoreElement element : {CoreElement::e4m3, CoreElement::bfloat16}) {
    c.left = c.right = element;
    for (const int size : {61, 100, 127, 180, 400}) {
      Product product(c);
      for (auto& exponent : product.left.exponents()) exponent += size;
      for (auto& exponent : product.right.exponents()) exponent -= size;
      product.run();
      product.expect_right();
      if (HasFatalFailure()) return;
    }
    for (const int sign : {-1, 1}) {
      Product product(c);
      for (auto& exponent : product.left.exponents()) exponent = sign * 100;
      for (auto& exponent : product.right.exponents()) exponent = sign * 90;
      product.run();
      product.out.for_each([&](std::int64_t b, std::int64_t i, std::int64_t j) {
        if (HasFatalFailure()) return;
        const auto [sum, magnitude] = product.sums(b, i, j);
        if (std::fabs(sum) <= 0x1p-9 * magnitude) return;  // may have been lost
        const float wanted = std::copysign(sign < 0 ? 0.0f : std::numeric_limits<float>::infinity(),
                                           static_cast<float>(sum));
        ASSERT_EQ(bits_of(product.out.get(b, i, j)), bits_of(wanted)) << i << ", " << j;
      });
    }
  }
}

TEST_F(MultiplySm90, NanStaysInItsRowAndColumn) {
  for (const auto& [left, right] : element_pairs) {
    Product product({.left = left, .right = right, .m = 300, .n = 264, .k = 320});
    const std::int64_t bad_row = 131, bad_column = 70;
    product.left.set(0, bad_row, 319, 0, product.left.nan());
    product.right.set(0, bad_column, 5, 0, product.right.nan());
    product.run();
    product.out.for_each([&](std::int64_t b, std::int64_t i, std::int64_t j) {
      ASSERT_EQ(std::isnan(product.out.get(b, i, j)), i == bad_row || j == bad_column)
          << show(left) << " x " << show(right) << " at " << i << ", " << j;
    });
  }
}

TEST_F(MultiplySm90, SumsOfNothing) {
  for (const CoreElement element : {CoreElement::e4m3, CoreElement::bfloat16}) {
    Case c{.left = element, .right = element, .m = 130, .n = 72, .k = 0};
    expect_right(c);
    c.beta = 0.5f;
    c.bias = DType::float32;
    expect_right(c);
    for (const Case& empty : {Case{.m = 0, .n = 8, .k = 8}, Case{.m = 8, .n = 0, .k = 8},
                              Case{.batch = 0, .m = 8, .n = 8, .k = 8}}) {
      EXPECT_NO_THROW(Product(empty).run()) << empty;
    }
  }
}

TEST_F(MultiplySm90, SameBytesEachTime) {
  for (const CoreElement element : {CoreElement::e4m3, CoreElement::bfloat16}) {
    Product first({.left = element, .right = element, .m = 700, .n = 520, .k = 1000});
    first.run();
    for (int turn = 0; turn < 3; ++turn) {
      Product again({.left = element, .right = element, .m = 700, .n = 520, .k = 1000});
      again.run();
      ASSERT_TRUE(std::equal(first.out.bytes().whole().begin(), first.out.bytes().whole().end(),
                             again.out.bytes().whole().begin()));
    }
  }
}

// The gate: one spread, anywhere, decides; and then either all of the output is written or nothing.
TEST_F(MultiplySm90, Gate) {
  const Case c{.m = 150, .n = 137, .k = 64};
  for (const int shift : {0, 5}) {
    for (const int where : {-1, 0, 149, 150, 286}) {
      for (const int kind : {0, 1, 2, 3}) {
        const bool wants_narrow = kind % 2 == 0, is_settled = kind / 2 == 1;
        Product product(c);
        for (auto& spread : product.left.spreads()) spread = 8;
        for (auto& spread : product.right.spreads()) spread = 26;
        if (where >= 150) {
          product.right.spreads()[where - 150] = 27;
        } else if (where >= 0) {
          product.left.spreads()[where] = 9;
        }
        product.run({false, wants_narrow, 8, 26, is_settled}, shift);
        if (wants_narrow == (where < 0)) {
          product.expect_right();
        } else {
          ASSERT_TRUE(std::equal(product.out.bytes().whole().begin(),
                                 product.out.bytes().whole().end(),
                                 product.before.bytes().whole().begin()))
              << where;
        }
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(MultiplySm90, Capture) {
  Product product({.m = 256, .n = 256, .k = 256});
  const cuda::RowScaled left = product.left.on_device(), right = product.right.on_device();
  DeviceTensor out(product.out);
  CoreFinish finish;
  finish.out = out.buffer();
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreate(&stream));
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  cuda::multiply_sm90("test", left, right, finish, {}, {stream});
  cudaGraph_t graph = nullptr;
  check_cuda(cudaStreamEndCapture(stream, &graph));
  cudaGraphExec_t executable = nullptr;
  check_cuda(cudaGraphInstantiate(&executable, graph, 0));
  check_cuda(cudaGraphLaunch(executable, stream));
  check_cuda(cudaStreamSynchronize(stream));
  out.copy_to(product.out);
  product.expect_right();
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

TEST_F(MultiplySm90, Refuses) {
  const auto said = [](Product& product, cuda::RowScaled right) {
    DeviceTensor out(product.out);
    CoreFinish finish;
    finish.out = out.buffer();
    return error_message([&] {
      cuda::multiply_sm90("gemm", product.left.on_device(), right, finish, {}, Stream{});
    });
  };
  Product product({.m = 8, .n = 8, .k = 32});
  cuda::RowScaled right = product.right.on_device();
  right.element = CoreElement::bfloat16;
  EXPECT_NE(said(product, right).find("gemm: one operand is FP8"), std::string::npos);
  right = product.right.on_device();
  right.columns = 16;
  EXPECT_NE(said(product, right).find("gemm: a has 32 columns and b 16"), std::string::npos);
  right = product.right.on_device();
  right.parts = 2;
  EXPECT_NE(said(product, right).find("gemm: b has 2 parts"), std::string::npos);
}

TEST(MultiplySm90Tile, CoversWhatTheKernelsHave) {
  for (const CoreElement element : {CoreElement::e4m3, CoreElement::bfloat16}) {
    for (const std::int64_t m : {1, 128, 384, 2048, 16384}) {
      for (const std::int64_t n : {1, 128, 2048, 8192, 57344}) {
        const cuda::TileSm90 tile = cuda::tile_sm90(element, element, 1, m, n, 4096, 132);
        EXPECT_EQ(tile.rows, 128);
        EXPECT_TRUE(tile.columns % 64 == 0 && tile.columns <= 256);
        EXPECT_EQ(tile.k * cuda::bytes_of(element), 128);
        EXPECT_LE(tile.stages * (tile.rows + tile.columns) * 128, 227 * 1024);
        EXPECT_TRUE(tile.cluster == 1 || tile.cluster == 2);
      }
    }
  }
}

}  // namespace
}  // namespace mxkern
