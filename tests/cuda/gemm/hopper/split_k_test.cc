// tests/cuda/gemm/hopper/split_k_test.cc: tiles of Hopper's product that are divided along K.
#include <vector>

#include "cuda/gemm/hopper/multiply.h"
#include "tests/support/cuda/hopper_test.h"
#include "tests/support/cuda/row_scaled_product.h"

namespace mxkern {
namespace {

using namespace test;
using cuda::PartMemory;
using kernels::WorkOrder;

class DividedTiles : public HopperTest {
 protected:
  void SetUp() override {
    HopperTest::SetUp();
    processors = capabilities_.processors;
  }

  int processors = 0;
};

// Working memory whose counters are zeros and whose sums are NaN.
struct PartBytes {
  PartBytes(const cuda::TileSm90& tile, const WorkOrder& order)
      : size(cuda::part_bytes(tile, order)),
        counters(cuda::part_counters(tile, order)),
        bytes(static_cast<std::size_t>(size)) {
    check_cuda(cudaMemset(bytes.data(), 0xFF, static_cast<std::size_t>(size)));
    check_cuda(cudaMemset(bytes.data(), 0, static_cast<std::size_t>(counters) * 4));
  }
  PartMemory view(const WorkOrder& order) { return {bytes.data(), size, counters, &order}; }

  void expect_zeros() {
    std::vector<std::uint32_t> words(static_cast<std::size_t>(counters));
    check_cuda(cudaMemcpy(words.data(), bytes.data(), words.size() * 4, cudaMemcpyDeviceToHost));
    for (const std::uint32_t word : words) ASSERT_EQ(word, 0u);
  }

  std::int64_t size, counters;
  DeviceBytes bytes;
};

// `divided` of the tiles, `shared` by `sharing` clusters.
struct Division {
  int divided, shared, sharing;
};

// The product of a case with its last tiles divided, or an order without tiles where it has fewer.
WorkOrder divide(const RowScaledCase& c, const cuda::TileSm90& tile, const Division& d,
                 int processors) {
  WorkOrder order =
      cuda::whole_work(tile, cuda::step_unit_sm90(c.right), c.batch, c.m, c.n, c.k, processors);
  const auto units = static_cast<int>(ceil_div(order.steps, order.unit));
  if (d.divided > order.tiles || d.sharing > units) return {};
  order.whole = order.tiles - d.divided;
  order.clusters = processors / tile.cluster;
  order.shared_tiles = d.shared;
  order.sharing_clusters = d.sharing;
  return order;
}

void expect_right(const RowScaledCase& c, const Division& d, int processors) {
  const cuda::TileSm90 tile = cuda::tile_sm90(c.left, c.right, c.batch, c.m, c.n, c.k, processors);
  const WorkOrder order = divide(c, tile, d, processors);
  ASSERT_GT(order.divided(), 0) << c << ": too small to divide " << d.divided << " tiles";
  PartBytes memory(tile, order);
  std::vector<std::uint8_t> first;
  for (int turn = 0; turn < 3; ++turn) {
    RowScaledProduct product(c);
    product.run_with(
        [&](const cuda::RowScaled& a, const cuda::RowScaled& b, const CoreFinish& finish,
            const CoreGate& gate) {
          cuda::multiply_sm90("test", a, b, finish, gate, Stream{}, memory.view(order));
        },
        {}, 0);
    memory.expect_zeros();
    const auto whole = product.out.bytes().whole();
    if (turn == 0) {
      product.expect_right(c.m * c.n > 100000 ? 997 : 1);
      product.expect_gaps();
      first.assign(whole.begin(), whole.end());
    }
    ASSERT_TRUE(std::equal(whole.begin(), whole.end(), first.begin())) << c << ", turn " << turn;
    if (::testing::Test::HasFatalFailure()) return;
  }
}

constexpr std::pair<CoreElement, CoreElement> element_pairs[] = {
    {CoreElement::e4m3, CoreElement::e4m3},
    {CoreElement::e4m3, CoreElement::e5m2},
    {CoreElement::e5m2, CoreElement::e4m3},
    {CoreElement::e5m2, CoreElement::e5m2},
    {CoreElement::bfloat16, CoreElement::bfloat16}};

// Tiles in two to seven parts, and stretches that end inside a tile; in clusters and alone.
TEST_F(DividedTiles, AreRight) {
  const Division divisions[] = {{1, 1, 2}, {2, 1, 7}, {3, 2, 3}, {4, 4, 7}, {5, 3, 5}, {2, 2, 2}};
  for (const auto& [left, right] : element_pairs) {
    for (const Division& d : divisions) {
      for (const std::int64_t n : {1060, 1024}) {  // an odd number of tiles side by side, and even
        RowScaledCase c{.left = left, .right = right, .m = 300, .n = n, .k = 2000};
        if (right == CoreElement::bfloat16) c.exponents = 2;
        expect_right(c, d, processors);
        if (HasFatalFailure()) return;
      }
    }
  }
}

// As many tiles as it takes to have each of them chosen.
TEST_F(DividedTiles, EveryTile) {
  for (const CoreElement element : {CoreElement::e4m3, CoreElement::bfloat16}) {
    for (const auto& [columns, m] : {std::pair{64, 100}, {128, 100}, {192, 129}, {256, 129}}) {
      const RowScaledCase c{.left = element,
                            .right = element,
                            .m = m,
                            .n = columns * processors - 8,
                            .k = 900,
                            .dtype = DType::bfloat16,
                            .exponents = 2};
      const cuda::TileSm90 tile = cuda::tile_sm90(element, element, 1, c.m, c.n, c.k, processors);
      ASSERT_EQ(tile.columns, columns);
      expect_right(c, {4, 1, 3}, processors);
      expect_right(c, {4, 3, 4}, processors);
      if (HasFatalFailure()) return;
    }
  }
}

// Alpha, beta and the bias count once.
TEST_F(DividedTiles, EverythingThatIsAdded) {
  for (const CoreElement element : {CoreElement::e4m3, CoreElement::bfloat16}) {
    for (const DType dtype : all_dtypes) {
      for (const std::int64_t n : {264, 129}) {
        RowScaledCase c{.left = element,
                        .right = element,
                        .batch = 2,
                        .m = 200,
                        .n = n,
                        .k = 1300,
                        .dtype = dtype,
                        .gap = 1,
                        .exponents = 2};
        c.alpha = -0.7f;
        c.beta = 0.5f;
        c.bias = DType::float32;
        c.left_tensor_scale = 0.37f;
        expect_right(c, {3, 1, 4}, processors);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(DividedTiles, NanStaysInItsRowAndColumn) {
  for (const auto& [left, right] : element_pairs) {
    const RowScaledCase c{.left = left, .right = right, .m = 300, .n = 520, .k = 1500};
    const cuda::TileSm90 tile = cuda::tile_sm90(left, right, 1, c.m, c.n, c.k, processors);
    const WorkOrder order = divide(c, tile, {4, 1, 3}, processors);
    PartBytes memory(tile, order);
    RowScaledProduct product(c);
    const std::int64_t bad_row = 131, bad_column = 70;
    product.left.set(0, bad_row, c.k - 1, 0, product.left.nan());
    product.right.set(0, bad_column, 5, 0, product.right.nan());
    product.run_with(
        [&](const cuda::RowScaled& a, const cuda::RowScaled& b, const CoreFinish& finish,
            const CoreGate& gate) {
          cuda::multiply_sm90("test", a, b, finish, gate, Stream{}, memory.view(order));
        },
        {}, 0);
    product.out.for_each([&](std::int64_t b, std::int64_t i, std::int64_t j) {
      ASSERT_EQ(std::isnan(product.out.get(b, i, j)), i == bad_row || j == bad_column)
          << show(left) << " x " << show(right) << " at " << i << ", " << j;
    });
  }
}

// Whoever finishes a tile, on two streams at once and from a graph: the same bytes.
TEST_F(DividedTiles, SameBytesOnTwoStreamsAndInAGraph) {
  for (const CoreElement element : {CoreElement::e4m3, CoreElement::bfloat16}) {
    const RowScaledCase c{.left = element,
                          .right = element,
                          .m = 1024,
                          .n = 2304,
                          .k = 1024,
                          .dtype = DType::bfloat16,
                          .exponents = 2};
    const cuda::TileSm90 tile = cuda::tile_sm90(element, element, 1, c.m, c.n, c.k, processors);
    const WorkOrder order = divide(c, tile, {6, 2, 3}, processors);
    ASSERT_GT(order.divided(), 0);
    RowScaledProduct product(c);
    const cuda::RowScaled left = product.left.on_device(), right = product.right.on_device();
    DeviceTensor outs[2] = {DeviceTensor(product.out), DeviceTensor(product.out)};
    PartBytes memories[2] = {PartBytes(tile, order), PartBytes(tile, order)};
    cudaStream_t streams[2];
    cudaGraphExec_t graphs[2];
    for (int i = 0; i < 2; ++i) {
      check_cuda(cudaStreamCreate(&streams[i]));
      CoreFinish finish;
      finish.out = outs[i].buffer();
      check_cuda(cudaStreamBeginCapture(streams[i], cudaStreamCaptureModeThreadLocal));
      for (int turn = 0; turn < 5; ++turn) {
        cuda::multiply_sm90("test", left, right, finish, {}, {streams[i]}, memories[i].view(order));
      }
      cudaGraph_t graph = nullptr;
      check_cuda(cudaStreamEndCapture(streams[i], &graph));
      check_cuda(cudaGraphInstantiate(&graphs[i], graph, 0));
      cudaGraphDestroy(graph);
    }
    std::vector<std::uint8_t> first;
    for (int turn = 0; turn < 20; ++turn) {
      for (int i = 0; i < 2; ++i) check_cuda(cudaGraphLaunch(graphs[i], streams[i]));
      check_cuda(cudaDeviceSynchronize());
      for (int i = 0; i < 2; ++i) {
        outs[i].copy_to(product.out);
        const auto whole = product.out.bytes().whole();
        if (first.empty()) {
          product.expect_right(997);
          first.assign(whole.begin(), whole.end());
        }
        ASSERT_TRUE(std::equal(whole.begin(), whole.end(), first.begin())) << "turn " << turn;
      }
    }
    for (int i = 0; i < 2; ++i) {
      memories[i].expect_zeros();
      cudaGraphExecDestroy(graphs[i]);
      cudaStreamDestroy(streams[i]);
    }
  }
}

// A gated product that has nothing to do leaves counters and output alone.
TEST_F(DividedTiles, BehindAGate) {
  const RowScaledCase c{.m = 300, .n = 264, .k = 1500};
  const cuda::TileSm90 tile = cuda::tile_sm90(c.left, c.right, 1, c.m, c.n, c.k, processors);
  const WorkOrder order = divide(c, tile, {2, 1, 5}, processors);
  for (const bool wants_narrow : {true, false}) {
    PartBytes memory(tile, order);
    RowScaledProduct product(c);
    product.run_with(
        [&](const cuda::RowScaled& a, const cuda::RowScaled& b, const CoreFinish& finish,
            const CoreGate& gate) {
          cuda::multiply_sm90("test", a, b, finish, gate, Stream{}, memory.view(order));
        },
        {false, wants_narrow, 8, 26}, 0);
    memory.expect_zeros();
    if (wants_narrow) {
      product.expect_right();
    } else {
      ASSERT_TRUE(std::equal(product.out.bytes().whole().begin(), product.out.bytes().whole().end(),
                             product.before.bytes().whole().begin()));
    }
  }
}

}  // namespace
}  // namespace mxkern
