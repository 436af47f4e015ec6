// tests/plan/hopper/plan_tiles_test.cc: every step of K of every tile is computed once, and by
// whom.
#include "plan/hopper/plan_tiles.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "plan/hopper/split_k.h"
#include "cuda/gemm/hopper/groups.h"
#include "mxkern/kernels/gemm/hopper/tile_order.cuh"

namespace mxkern {
namespace {

using kernels::TileWork;
using kernels::WorkOrder;

// The clusters' work as the kernel goes through it.
std::vector<TileWork> work_of(const WorkOrder& order, int cluster) {
  std::vector<TileWork> all;
  for (int index = cluster; index < order.whole; index += order.clusters) {
    all.push_back({index, 0, order.steps});
  }
  TileWork part = order.first_part(cluster);
  int parts = 0;
  for (; part.index >= 0; part = order.part_after(part, cluster)) {
    all.push_back(part);
    ++parts;
  }
  EXPECT_LE(parts, 2) << "there is room for two";
  return all;
}

void expect_complete(const WorkOrder& order) {
  SCOPED_TRACE(::testing::Message() << order.tiles << " tiles, " << order.whole << " whole, "
                                    << order.steps << " of " << order.unit << " steps, "
                                    << order.shared_tiles << " by " << order.sharing_clusters);
  struct Part {
    int first, count, own, of;
  };
  std::map<int, std::map<int, Part>> parts;  // of a tile, by their places among its parts
  std::set<int> slots;
  for (int cluster = 0; cluster < order.clusters; ++cluster) {
    for (const TileWork& work : work_of(order, cluster)) {
      ASSERT_LT(work.index, order.tiles);
      ASSERT_TRUE(work.count > 0 || order.steps == 0);
      ASSERT_EQ(work.first % order.unit, 0);
      WorkOrder::Parts place{0, 1, 0};
      if (work.index >= order.whole) {
        place = order.parts_of(work, cluster);
        ASSERT_TRUE(slots.insert(place.first_slot + place.own).second) << "two in one slot";
        ASSERT_LT(place.first_slot + place.own, order.slots());
      }
      const Part part{work.first, work.count, place.own, place.count};
      ASSERT_TRUE(parts[work.index].emplace(place.own, part).second);
    }
  }
  ASSERT_EQ(static_cast<int>(parts.size()), order.tiles);
  for (const auto& [tile, of_tile] : parts) {
    int at = 0;
    for (const auto& [own, part] : of_tile) {
      ASSERT_EQ(part.of, static_cast<int>(of_tile.size())) << tile;
      ASSERT_EQ(part.first, at) << tile << ": parts come in the order of K";
      at += part.count;
    }
    ASSERT_EQ(at, order.steps) << tile;
  }
}

TEST(PlanTilesSm90Test, FewestClustersTakeAsManyTurns) {
  const auto turns = [](int tiles, int clusters) { return (tiles + clusters - 1) / clusters; };
  for (const int clusters : {1, 2, 57, 66}) {
    for (int tiles = 1; tiles <= 5 * clusters; ++tiles) {
      const int used = tiles < clusters ? tiles : clusters;
      const WorkOrder order{tiles, tiles, used, 32, 1};
      const int fewest = order.fewest_clusters();
      ASSERT_LE(fewest, used);
      ASSERT_EQ(turns(tiles, fewest), turns(tiles, used)) << tiles;
      if (fewest > 1) {
        ASSERT_GT(turns(tiles, fewest - 1), turns(tiles, used)) << tiles;
      }
      WorkOrder shortened = order;
      shortened.clusters = fewest;
      expect_complete(shortened);
    }
  }
  EXPECT_EQ((WorkOrder{256, 256, 66, 32, 1}.fewest_clusters()), 64);
  // All clusters have parts of tiles that are divided.
  EXPECT_EQ((WorkOrder{200, 198, 66, 32, 1, 1, 33}.fewest_clusters()), 66);
}

TEST(PlanTilesSm90, EveryStepIsComputedOnce) {
  for (const int steps : {1, 2, 7, 32, 57, 128}) {
    for (const int unit : {1, 4}) {
      for (const int rest : {1, 2, 5, 10, 28, 44, 58, 65}) {
        for (const int shared : {1, 2, 3, rest}) {
          const int groups = (rest + shared - 1) / shared;
          for (int sharing = shared; sharing <= 66 / groups; ++sharing) {
            // Each cluster has a step, also where a group has fewer tiles: see divided_work.
            if (sharing > (steps + unit - 1) / unit * (rest - (groups - 1) * shared)) break;
            for (const int whole : {0, 66, 132}) {
              expect_complete({whole + rest, whole, 66, steps, unit, shared, sharing});
              if (HasFatalFailure()) return;
            }
          }
        }
      }
    }
  }
}

constexpr cuda::CoreElement e4m3 = cuda::CoreElement::e4m3, bfloat16 = cuda::CoreElement::bfloat16;

WorkOrder divided(cuda::CoreElement element, std::int64_t m, std::int64_t n, std::int64_t k) {
  const cuda::TileSm90 tile = cuda::tile_sm90(element, element, 1, m, n, k, 132);
  return cuda::work_sm90(tile, element, 1, 1, m, n, k, 132);
}

TEST(PlanTilesSm90, TheLastTurnIsDividedWhereThatPays) {
  WorkOrder work = divided(e4m3, 8192, 10240, 8192);  // 64 x 40 tiles, two a cluster: 19.4 turns
  EXPECT_EQ(work.tiles, 1280);
  EXPECT_EQ(work.whole, 1254);
  EXPECT_EQ(work.sharing_clusters, 2);
  work = divided(bfloat16, 8192, 8192, 8192);  // 15.5 turns
  EXPECT_EQ(work.whole, 990);
  EXPECT_GT(work.shared_tiles, 1);
  work = divided(bfloat16, 8192, 14336, 4096);  // 27.15 turns
  EXPECT_EQ(work.whole, 27 * 66);
  EXPECT_GE(work.sharing_clusters, 3);
  EXPECT_EQ(divided(bfloat16, 4096, 4096, 4096).divided(), 0) << "3.9 turns";
  EXPECT_EQ(divided(e4m3, 4096, 4096, 4096).divided(), 0) << "3.9 turns";
  EXPECT_EQ(divided(e4m3, 8192, 4096, 512).divided(), 0) << "there is little to divide";
  EXPECT_EQ(divided(e4m3, 3072, 2816, 4096).divided(), 0) << "full turns";
  EXPECT_EQ(divided(e4m3, 2048, 8192, 28672).divided(), 0) << "a turn that is three quarters full";
  EXPECT_EQ(divided(e4m3, 128, 4096, 4096).divided(), 0) << "half a turn waits for memory";
  EXPECT_EQ(divided(bfloat16, 384, 8192, 8192).divided(), 0) << "one full turn of 129 tiles";
  EXPECT_GT(divided(e4m3, 128, 4096, 14336).sharing_clusters, 2) << "a quarter does not";
  EXPECT_LE(divided(e4m3, 1280, 5120, 5120).sharing_clusters, 6) << "not two tiles by 66";
  for (const std::int64_t m : {1, 128, 1000, 2048, 8192}) {
    for (const std::int64_t n : {8, 256, 4096, 14336}) {
      for (const std::int64_t k : {32, 4096, 28672, 1 << 20}) {
        for (const cuda::CoreElement element : {e4m3, bfloat16}) {
          expect_complete(divided(element, m, n, k));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// As it was measured on an H200, where all were timed.
TEST(PlanTilesSm90, TheTileThatKeepsMultiprocessorsBusiest) {
  const auto columns_of = [](std::int64_t m, std::int64_t n, std::int64_t k) {
    const int eight_bits = cuda::tile_sm90(e4m3, e4m3, 1, m, n, k, 132).columns;
    EXPECT_EQ(cuda::tile_sm90(bfloat16, bfloat16, 1, m, n, k, 132).columns, eight_bits)
        << m << " " << n << " " << k;
    return eight_bits;
  };
  EXPECT_EQ(columns_of(4096, 4096, 4096), 256) << "3.9 turns, as small ones would be 7.8";
  EXPECT_EQ(columns_of(8192, 8192, 8192), 256);
  EXPECT_EQ(columns_of(512, 6144, 4096), 192) << "one turn of 128 tiles";
  EXPECT_EQ(columns_of(384, 8192, 8192), 192);
  EXPECT_EQ(columns_of(3072, 3072, 3072), 192) << "2.9 turns";
  EXPECT_EQ(columns_of(512, 4096, 4096), 128) << "one turn of 128 tiles";
  EXPECT_EQ(columns_of(256, 4096, 4096), 64) << "one turn of 128 tiles";
  EXPECT_EQ(columns_of(16, 8192, 8192), 64) << "one turn of 128 tiles";
  EXPECT_EQ(cuda::tile_sm90(e4m3, bfloat16, 1, 384, 8192, 8192, 132).columns, 256) << "decodes";
}

constexpr Device device{DeviceType::cuda, 0};

BlockScaled quantized(Shape shape) {
  BlockScaled q;
  q.scheme = Scheme::mxfp8_e4m3;
  q.shape = shape;
  q.codes = q.scales = reinterpret_cast<std::uint8_t*>(0x10000);
  q.device = device;
  return q;
}

GemmProblem problem_of(const GemmOperand& left, GemmPrecision precision, std::int64_t batch = 1) {
  const Buffer out = Buffer::dense(reinterpret_cast<void*>(0x10000), DType::bfloat16,
                                   {batch, 8192 / batch, 8192}, device);
  return {left, quantized({1, 8192, 8192}), out, precision};
}

// Of groups of columns: what divides an output is not worth more ends of tiles.
TEST(PlanTilesSm90, GroupsOfColumnsTakeSmallTilesOnlyForSmallOutputs) {
  constexpr int processors = 132;
  for (const auto element : {cuda::CoreElement::e4m3, cuda::CoreElement::bfloat16}) {
    const auto columns_of = [&](int groups, int m, int n, int mean) {
      return cuda::columns_tile_sm90(element, groups, m, n, std::int64_t{mean} * groups, processors)
          .columns;
    };
    for (const int mean : {48, 530, 2065}) {
      EXPECT_EQ(columns_of(32, 5760, 2880, mean), 256) << mean;
      EXPECT_EQ(columns_of(128, 1536, 2048, mean), 256) << mean;
      EXPECT_EQ(columns_of(8, 256, 192, mean), 128) << mean;
    }
  }
}

TEST(PlanTilesSm90, ThereIsMemoryForTheParts) {
  const CudaGemmCapabilities hopper = capabilities_of("sm_90");
  for (const std::int64_t batch : {1, 2}) {
    const Shape shape{batch, 8192 / batch, 8192};
    for (const GemmPrecision precision : {GemmPrecision::exact, GemmPrecision::automatic}) {
      const GemmProblem problem = problem_of(quantized(shape), precision, batch);
      const CudaGemmPlan plan = plan_gemm_cuda(problem, hopper);
      const cuda::TileSm90 tile = cuda::tile_sm90(bfloat16, bfloat16, 1, 8192, 8192, 8192, 132);
      const WorkOrder work = cuda::work_sm90(tile, bfloat16, 1, 1, 8192, 8192, 8192, 132);
      ASSERT_GT(work.divided(), 0);
      EXPECT_GE(plan.part_bytes, cuda::part_bytes(tile, work));
      EXPECT_GE(plan.part_counters, cuda::part_counters(tile, work));
      EXPECT_EQ(plan.part_sums % 256, 0u);
      EXPECT_LE(plan.part_sums + static_cast<std::size_t>(plan.part_bytes), plan.workspace_bytes);
      EXPECT_GT(plan.part_sums, plan.right.expanded);
      const GemmExplanation text = explain(plan, problem, hopper);
      EXPECT_NE(text.kernel.find("of 2048 tiles divided along K"), std::string::npos)
          << text.kernel;
    }
  }
}

TEST(PlanTilesSm90, ThereIsMemoryForThePartsOfFoldedElements) {
  const CudaGemmCapabilities hopper = capabilities_of("sm_90");
  const GemmProblem problem = problem_of(quantized({1, 8192, 8192}), GemmPrecision::folded);
  const CudaGemmPlan plan = plan_gemm_cuda(problem, hopper);
  ASSERT_EQ(plan.path, CudaGemmPath::folded);
  const TilingSm90 tiling = tiling_sm90(problem, multiplied_shape(problem), true, 132);
  ASSERT_GT(tiling.work.divided(), 0);
  EXPECT_GE(plan.part_bytes, cuda::part_bytes(tiling.tile, tiling.work));
  EXPECT_GE(plan.part_counters, cuda::part_counters(tiling.tile, tiling.work));
}

TEST(PlanTilesSm90, ASingleDividedTileHasMemoryForItsParts) {
  const cuda::TileSm90 tile = cuda::tile_sm90(bfloat16, bfloat16, 1, 64, 64, 4096, 132);
  const WorkOrder work = cuda::work_sm90(tile, bfloat16, 1, 1, 64, 64, 4096, 132);
  EXPECT_EQ(work.divided(), 1);
  EXPECT_GT(cuda::part_bytes(tile, work), 0);
}

// The bytes of a product do not depend on what was prepared.
TEST(PlanTilesSm90, PreparedOperandsAreMultipliedTheSameWay) {
  const CudaGemmCapabilities hopper = capabilities_of("sm_90");
  const auto prepared = [](PreparedForm form, const Shape& shape) {
    return PreparedOperand{form, quantized(shape), reinterpret_cast<void*>(0x10000), 1 << 30};
  };
  const Shape shape{1, 8192, 8192};
  for (const auto& [form, precision] : {std::pair{PreparedForm::folded, GemmPrecision::folded},
                                        std::pair{PreparedForm::expanded, GemmPrecision::exact}}) {
    const GemmProblem in_the_call = problem_of(quantized(shape), precision);
    GemmProblem ahead = in_the_call;
    ahead.left = prepared(form, shape);
    ahead.right = prepared(form, shape);
    const CudaGemmPlan plan = plan_gemm_cuda(ahead, hopper);
    EXPECT_EQ(plan.part_bytes, plan_gemm_cuda(in_the_call, hopper).part_bytes);
    EXPECT_EQ(explain(plan, ahead, hopper).kernel, explain(plan, in_the_call, hopper).kernel);
  }
  const GemmProblem two_parts =
      problem_of(Buffer::dense(reinterpret_cast<void*>(0x10000), DType::float16, shape, device),
                 GemmPrecision::exact);
  EXPECT_EQ(plan_gemm_cuda(two_parts, hopper).part_bytes, 0);
}

// Each tile has one place in either order, and the divided ones have the same.
TEST(TileOrderTest, TheLastTilesDoNotDependOnWhatIsLate) {
  for (const int down : {1, 3, 11, 21, 43}) {
    for (const int right : {1, 5, 16, 33}) {
      const int tiles = down * right;
      for (const int late_band : {4, 16}) {
        for (const int last : {0, 1, 7, 34, 65}) {
          if (last > tiles) continue;
          const kernels::TileOrder order{down, right, 1, 11, late_band, tiles - last};
          std::set<std::pair<int, int>> seen;
          for (int i = 0; i < tiles; ++i) {
            const auto tile = order.late_at(i), plain = order.at(i);
            ASSERT_TRUE(tile.down >= 0 && tile.down < down && tile.right >= 0 &&
                        tile.right < right && tile.batch == 0);
            ASSERT_TRUE(seen.emplace(tile.down, tile.right).second)
                << "twice: " << tile.down << " " << tile.right;
            if (i < tiles - last) continue;
            EXPECT_TRUE(tile.down == plain.down && tile.right == plain.right)
                << down << " x " << right << " in bands of " << late_band << ", " << i;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace mxkern
