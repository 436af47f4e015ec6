// plan/gemm_cpu.cc: the choice of unit and blocks of a matrix product.
#include "plan/gemm_cpu.h"

#include <algorithm>
#include <limits>

#include "mxkern/core/error.h"
#include "mxkern/core/math.h"
#include "mxkern/numerics/visit.h"

namespace mxkern {
namespace {

// A plain left operand is the sum of as many bfloat16 as its significand needs, 8 bits each.
int parts_of(const CpuGemmProblem& problem) {
  if (!problem.left_is_plain) return 1;
  switch (problem.left_dtype) {
    case DType::bfloat16: return 1;
    case DType::float16: return 2;
    case DType::float32: return 3;
  }
  return 3;
}

struct Choice {
  GemmUnit unit;
  const char* reason;
};

// Whether products of parts add up to those of the elements: 0 times Inf is NaN, and a part may be
// 0 where its element is not.
bool may_have_parts(const CpuGemmProblem& problem) {
  if (parts_of(problem) == 1) return true;
  return !problem.right_is_plain && visit(problem.right_scheme, [](auto scheme) {
    return decltype(scheme)::Format::specials != Specials::ieee;
  });
}

Choice choose_unit_for_many(const CpuGemmProblem& problem,
                            const CpuGemmCapabilities& capabilities) {
  const bool has_amx = capabilities.runs(GemmUnit::amx_bf16);
  if (has_amx && may_have_parts(problem)) {
    return {GemmUnit::amx_bf16, "elements are exact in bfloat16, or in a sum of few"};
  }
  if (capabilities.runs(GemmUnit::avx512_bf16) && capabilities.has_fast_bf16_dot &&
      parts_of(problem) == 1) {
    return {GemmUnit::avx512_bf16, "elements are exact in bfloat16"};
  }
  const char* reason = has_amx ? "b may have Inf, which parts of elements do not take"
                               : "the widest float32 vectors";
  for (const GemmUnit unit : {GemmUnit::avx512, GemmUnit::avx2}) {
    if (capabilities.runs(unit)) return {unit, reason};
  }
  return {GemmUnit::baseline, "every machine has it"};
}

GemmUnit unit_for_few(const CpuGemmCapabilities& capabilities) {
  for (const GemmUnit unit : {GemmUnit::avx512_few_rows, GemmUnit::avx2_few_rows}) {
    if (capabilities.runs(unit)) return unit;
  }
  return GemmUnit::baseline_few_rows;
}

// A unit that reads panels, and the most rows of it.
struct PanelChoice {
  GemmUnit unit;
  std::int64_t rows;
};

PanelChoice unit_for_panels(const CpuGemmProblem& problem,
                            const CpuGemmCapabilities& capabilities) {
  const std::int64_t beside_tiles = capabilities.runs(GemmUnit::amx_bf16) && may_have_parts(problem)
                                        ? tuning::cpu::panel_rows_beside_amx
                                        : std::numeric_limits<std::int64_t>::max();
  if (capabilities.runs(GemmUnit::avx512_bf16_panels) && parts_of(problem) <= 2 &&
      may_have_parts(problem)) {
    return {GemmUnit::avx512_bf16_panels,
            std::min(beside_tiles, tuning::cpu::avx512_bf16_panel_rows / parts_of(problem))};
  }
  if (capabilities.runs(GemmUnit::avx512_panels)) {
    return {GemmUnit::avx512_panels, std::min(beside_tiles, tuning::cpu::avx512_panel_rows)};
  }
  if (capabilities.runs(GemmUnit::avx2_panels)) {
    return {GemmUnit::avx2_panels, tuning::cpu::avx2_panel_rows};
  }
  return {GemmUnit::baseline, 0};
}

// Of few rows, one tile, decoding takes most of the time, and putting panels together as long
// again.
Choice choose_unit(const CpuGemmProblem& problem, const CpuGemmCapabilities& capabilities) {
  if (problem.right_is_panels) {
    const PanelChoice panels = unit_for_panels(problem, capabilities);
    if (problem.m > panels.rows) return choose_unit_for_many(problem, capabilities);
    return {panels.unit, "a has few rows: panels of b are decoded as they are read"};
  }
  const GemmUnit unit = unit_for_few(capabilities);
  if (problem.right_is_plain || problem.m > facts_of(unit).tile_rows)
    return choose_unit_for_many(problem, capabilities);
  return {unit, "a has few rows: those of b are decoded where they lie"};
}

// A tile; for few rows as many of it as there is code for. Rows that are not there would lie
// between the others, and leave them a few sets of the L1 cache.
int left_tile_of(GemmUnit unit, std::int64_t rows) {
  int tile = facts_of(unit).tile_rows;
  if (reads_panels(unit)) {
    for (const int count : panel_row_counts) {
      if (count <= tile && rows <= count) return count;
    }
    return tile;
  }
  while (is_for_few_rows(unit) && tile > 1 && rows <= tile / 2) tile /= 2;
  return tile;
}

// Splits the output so that the last thread is done as early as possible: small blocks even out the
// threads, large ones pack less.
void choose_blocks(const CpuGemmProblem& problem, int threads, CpuGemmPlan& plan) {
  const GemmUnitFacts facts = facts_of(plan.unit);
  const std::int64_t row_tiles = std::max<std::int64_t>(ceil_div(problem.m, facts.tile_rows), 1);
  const std::int64_t column_tiles =
      std::max<std::int64_t>(ceil_div(problem.n, facts.tile_columns), 1);
  const std::int64_t fewest_rows = ceil_div(row_tiles, facts.max_block_rows / facts.tile_rows);
  const std::int64_t fewest_columns =
      ceil_div(column_tiles, facts.max_block_columns / facts.tile_columns);
  const double parallel_cost = tuning::cpu::parallel_ns * facts.multiplies_per_ns;
  const double depth = static_cast<double>(std::max<std::int64_t>(problem.k, 1));
  double best = -1;
  const auto try_split = [&](std::int64_t rows, std::int64_t columns) {
    const std::int64_t block_rows = ceil_div(row_tiles, rows) * facts.tile_rows;
    const std::int64_t block_columns = ceil_div(column_tiles, columns) * facts.tile_columns;
    const std::int64_t blocks = problem.batch * rows * columns;
    const double block_cost =
        depth * (static_cast<double>(block_rows * block_columns) * plan.parts +
                 static_cast<double>(block_rows + block_columns) * facts.pack_cost);
    const bool parallel = blocks > 1 && threads > 1;
    const double cost = static_cast<double>(ceil_div(blocks, threads)) * block_cost +
                        (parallel ? parallel_cost : 0.0);
    if (best >= 0 && cost >= best) return;
    best = cost;
    plan.block_rows = block_rows;
    plan.block_columns = block_columns;
    plan.row_blocks = ceil_div(row_tiles * facts.tile_rows, block_rows);
    plan.column_blocks = ceil_div(column_tiles * facts.tile_columns, block_columns);
  };
  const std::int64_t most = tuning::cpu::blocks_per_thread * static_cast<std::int64_t>(threads);
  for (std::int64_t rows = 0; rows < std::min(most, row_tiles - fewest_rows + 1); ++rows) {
    for (std::int64_t columns = 0; columns < std::min(most, column_tiles - fewest_columns + 1);
         ++columns) {
      try_split(fewest_rows + rows, fewest_columns + columns);
      if (problem.batch * (fewest_rows + rows) * (fewest_columns + columns) >=
          tuning::cpu::most_blocks_per_thread * threads) {
        break;
      }
    }
  }
  plan.blocks = problem.batch * plan.row_blocks * plan.column_blocks;
}

// Columns of panels are shared among threads by bytes. All rows of a block go by while its panels
// are in the cache.
void choose_panel_blocks(const CpuGemmProblem& problem, int threads, CpuGemmPlan& plan) {
  const GemmUnitFacts facts = facts_of(plan.unit);
  const std::int64_t row_tiles = std::max<std::int64_t>(ceil_div(problem.m, facts.tile_rows), 1);
  const std::int64_t column_tiles =
      std::max<std::int64_t>(ceil_div(problem.n, facts.tile_columns), 1);
  plan.row_blocks = ceil_div(row_tiles, facts.max_block_rows / facts.tile_rows);
  plan.block_rows = ceil_div(row_tiles, plan.row_blocks) * facts.tile_rows;
  const std::int64_t tile_bytes =
      std::max<std::int64_t>(problem.k * facts_of(problem.right_scheme).bits / 8, 1) *
      facts.tile_columns;
  const std::int64_t worthwhile = ceil_div(tuning::cpu::panel_block_bytes, tile_bytes);
  const std::int64_t evened_out = ceil_div(
      column_tiles * problem.batch, tuning::cpu::panel_blocks_per_thread * std::int64_t{threads});
  const std::int64_t tiles = std::clamp<std::int64_t>(std::max(worthwhile, evened_out), 1,
                                                      facts.max_block_columns / facts.tile_columns);
  plan.block_columns = tiles * facts.tile_columns;
  plan.column_blocks = ceil_div(column_tiles, tiles);
  plan.blocks = problem.batch * plan.row_blocks * plan.column_blocks;
}

}  // namespace

bool merges_batch(const PlannedOperand& a, const PlannedOperand& b, const PlannedTensor& out) {
  // Rows of neighbouring matrices follow one another as rows of one matrix do.
  const bool follows_on =
      a.is_plain ? is_one_matrix(a.plain) : a.scale_layout == ScaleLayout::row_major;
  return b.shape.batch == 1 && is_one_matrix(out) && follows_on;
}

CpuGemmProblem cpu_problem(const PlannedOperand& a, const PlannedOperand& b,
                           const PlannedTensor& out) {
  const bool merges = merges_batch(a, b, out);
  return {.batch = merges ? 1 : out.shape.batch,
          .m = merges ? out.shape.batch * out.shape.rows : out.shape.rows,
          .n = out.shape.columns,
          .k = b.shape.columns,
          .left_is_plain = a.is_plain,
          .left_scheme = a.scheme,
          .left_dtype = a.plain.dtype,
          .right_scheme = b.scheme,
          .out_dtype = out.dtype,
          .right_is_panels = b.form == PreparedForm::panels,
          .right_is_plain = b.is_plain};
}

GemmSlotLayout slot_layout(const CpuGemmPlan& plan, std::int64_t k) {
  const GemmUnitFacts facts = facts_of(plan.unit);
  const std::int64_t depth = std::min<std::int64_t>(round_up(k, gemm_chunk), facts.depth);
  const std::int64_t left_rows = ceil_div(plan.block_rows, facts.tile_rows) * plan.left_tile;
  const std::int64_t left_depth = plan.keeps_left ? round_up(k, gemm_chunk) : depth;
  // Of units for few rows it says where they lie.
  const std::int64_t right_depth = is_for_few_rows(plan.unit) ? gemm_chunk : depth;
  // Sums stay in memory between panels along K; where one panel is all, they leave at once.
  const std::int64_t tiles = k > facts.depth
                                 ? plan.block_rows * plan.block_columns
                                 : static_cast<std::int64_t>(facts.tile_rows) * facts.tile_columns;
  GemmSlotLayout layout{};
  std::size_t end = 0;
  const auto place = [&end](std::int64_t bytes) {
    const std::size_t begin = end;
    end += static_cast<std::size_t>(round_up(bytes, 64));
    return begin;
  };
  layout.state = place(8);
  layout.panel_row = place(plan.right_is_panels ? 2 * round_up(k, 128) : 0);
  layout.left_shifts = place(plan.block_rows * 4);
  layout.right_shifts = place(plan.block_columns * 4);
  layout.left_spreads = place(plan.block_rows * 4);
  layout.right_spreads = place(plan.block_columns * 4);
  layout.bias = place(plan.block_columns * 4);
  layout.left = place(left_rows * left_depth * plan.parts * facts.element_bytes);
  layout.right = place(facts.tile_columns * right_depth * facts.element_bytes);
  layout.tiles = place(tiles * 4);
  layout.bytes = end;
  return layout;
}

CpuGemmPlan plan_gemm_cpu_with(GemmUnit unit, const CpuGemmProblem& problem, int threads) {
  CpuGemmPlan plan{};
  plan.unit = unit;
  plan.parts = takes_bfloat16(unit) ? parts_of(problem) : 1;
  plan.left_tile = left_tile_of(unit, problem.m);
  plan.reason = "asked for";
  plan.right_is_panels = problem.right_is_panels;
  if (reads_panels(unit)) {
    choose_panel_blocks(problem, threads, plan);
  } else {
    choose_blocks(problem, threads, plan);
  }
  plan.keeps_left = plan.column_blocks > 1 && plan.block_rows * plan.parts *
                                                      round_up(problem.k, gemm_chunk) *
                                                      facts_of(unit).element_bytes <=
                                                  tuning::cpu::kept_left_bytes;
  plan.slots = static_cast<int>(std::clamp<std::int64_t>(plan.blocks, 1, threads));
  plan.slot_bytes = slot_layout(plan, problem.k).bytes;
  plan.workspace_bytes =
      plan.slot_bytes * static_cast<std::size_t>(plan.slots) +
      static_cast<std::size_t>(round_up(plan.slots, 64));  // one flag a slot: taken or not
  return plan;
}

CpuGemmPlan plan_gemm_cpu(const CpuGemmProblem& problem, const CpuGemmCapabilities& capabilities) {
  const Choice choice = choose_unit(problem, capabilities);
  CpuGemmPlan plan = plan_gemm_cpu_with(choice.unit, problem, capabilities.threads);
  plan.reason = choice.reason;
  return plan;
}

std::string describe(const CpuGemmPlan& plan) {
  const GemmUnitFacts facts = facts_of(plan.unit);
  return concatenate(facts.name, " (", plan.reason, "), tiles of ", facts.tile_rows, "x",
                     facts.tile_columns, ", ", plan.blocks,
                     plan.blocks == 1 ? " block of " : " blocks of ", plan.block_rows, "x",
                     plan.block_columns, ", panels of ", facts.depth, " along K, ", plan.parts,
                     plan.parts == 1 ? " part" : " parts", ", workspace ", plan.workspace_bytes,
                     " bytes in ", plan.slots, " slots");
}

}  // namespace mxkern
