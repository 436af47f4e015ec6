// plan/gemm_cpu.h: how a matrix product is computed, as a value: which unit multiplies, in
// which blocks, with how much working memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

#include "mxkern/core/dtype.h"
#include "mxkern/numerics/scheme.h"
#include "mxkern/tensor/planned_operand.h"
#include "tuning/cpu.h"

namespace mxkern {

// What multiplies: float32 vectors of an instruction set, or dot products of bfloat16. For a few
// rows, float32 vectors along K; and with weights that were prepared as panels, a vector of either
// kind whose lanes are columns of the output.
enum class GemmUnit : std::uint8_t {
  baseline,
  avx2,
  avx512,
  avx512_bf16,
  amx_bf16,
  baseline_few_rows,
  avx2_few_rows,
  avx512_few_rows,
  avx2_panels,
  avx512_panels,
  avx512_bf16_panels
};

inline constexpr GemmUnit all_gemm_units[] = {GemmUnit::baseline,
                                              GemmUnit::avx2,
                                              GemmUnit::avx512,
                                              GemmUnit::avx512_bf16,
                                              GemmUnit::amx_bf16,
                                              GemmUnit::baseline_few_rows,
                                              GemmUnit::avx2_few_rows,
                                              GemmUnit::avx512_few_rows,
                                              GemmUnit::avx2_panels,
                                              GemmUnit::avx512_panels,
                                              GemmUnit::avx512_bf16_panels};

// Elements are packed in chunks of this many along K: a block of MX, two of NVFP4.
inline constexpr int gemm_chunk = 32;

// What a unit is like. The units' kernels and the plan both read it.
struct GemmUnitFacts {
  const char* name;
  int tile_rows;     // of the output, that one multiplication keeps in registers
  int tile_columns;  // two vectors or two tiles
  int element_bytes;
  int depth;           // of a packed panel along K: a panel of tile_columns stays in the L1 cache
  int max_block_rows;  // of the output, that one thread works on: both panels stay in L2
  int max_block_columns;  //
  int multiplies_per_ns;  // of a core, roughly
  int pack_cost;          // multiplications in the time that packing one element takes, roughly
};

constexpr GemmUnitFacts facts_of(GemmUnit unit) {
  namespace tuned = tuning::cpu;
  const auto facts = [](const char* name, int rows, int columns, int bytes, tuned::UnitBlock block,
                        tuned::UnitSpeed speed) -> GemmUnitFacts {
    return {name,           rows,       columns,       bytes,
            block.depth,    block.rows, block.columns, speed.multiplies_per_ns,
            speed.pack_cost};
  };
  switch (unit) {
    case GemmUnit::baseline:
      return facts("baseline", 4, 8, 4, tuned::baseline_block, tuned::baseline);
    case GemmUnit::avx2: return facts("avx2", 6, 16, 4, tuned::float32_block, tuned::avx2);
    case GemmUnit::avx512: return facts("avx512", 12, 32, 4, tuned::float32_block, tuned::avx512);
    case GemmUnit::avx512_bf16:
      return facts("avx512_bf16", 12, 32, 2, tuned::bf16_block, tuned::avx512_bf16);
    case GemmUnit::amx_bf16: return facts("amx_bf16", 32, 32, 2, tuned::amx_block, tuned::amx_bf16);
    case GemmUnit::baseline_few_rows:
      return facts("baseline_few_rows", 4, 8, 4, tuned::baseline_few_rows_block,
                   tuned::baseline_few_rows);
    case GemmUnit::avx2_few_rows:
      return facts("avx2_few_rows", 4, 16, 4, tuned::few_rows_block, tuned::avx2_few_rows);
    case GemmUnit::avx512_few_rows:
      return facts("avx512_few_rows", 8, 32, 4, tuned::few_rows_block, tuned::avx512_few_rows);
    case GemmUnit::avx2_panels:
      return facts("avx2_panels", 4, 16, 4, tuned::panels_block, tuned::avx2_few_rows);
    case GemmUnit::avx512_panels:
      return facts("avx512_panels", 16, 32, 4, tuned::panels_block, tuned::avx512_few_rows);
    case GemmUnit::avx512_bf16_panels:
      return facts("avx512_bf16_panels", 16, 32, 2, tuned::panels_block, tuned::avx512_bf16);
  }
  return {};
}

// Of one tile, as a rule. They decode the rows of the right operand where these lie.
constexpr bool is_for_few_rows(GemmUnit unit) { return unit >= GemmUnit::baseline_few_rows; }

// Of those, the ones for a right operand that was prepared as panels, and for no other.
constexpr bool reads_panels(GemmUnit unit) { return unit >= GemmUnit::avx2_panels; }

// Rows of the left operand that there is code for with panels, together with its parts.
inline constexpr int panel_row_counts[] = {1, 2, 3, 4, 6, 8, 12, 16};

constexpr const char* name_of(GemmUnit unit) { return facts_of(unit).name; }

// Multiplies bfloat16 elements; the others multiply float32.
constexpr bool takes_bfloat16(GemmUnit unit) { return facts_of(unit).element_bytes == 2; }

struct CpuGemmProblem {
  std::int64_t batch = 1;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool left_is_plain = false;
  Scheme left_scheme = Scheme::mxfp8_e4m3;  // where it is not
  DType left_dtype = DType::float32;        // where it is
  Scheme right_scheme = Scheme::mxfp8_e4m3;
  DType out_dtype = DType::float32;
  bool right_is_panels = false;  // prepared as these
  bool right_is_plain = false;   // bfloat16, of which any may be Inf
};

// Whether a batch that shares its right operand is one product with more rows, which memory has to
// allow.
bool merges_batch(const PlannedOperand& a, const PlannedOperand& b, const PlannedTensor& out);

// What the CPU's plans ask of operands that are checked.
CpuGemmProblem cpu_problem(const PlannedOperand& a, const PlannedOperand& b,
                           const PlannedTensor& out);

struct CpuGemmCapabilities {
  bool has[std::size(all_gemm_units)] = {true};  // by unit
  // AMD multiplies two bfloat16 in the time of one float32; Intel's instruction takes twice as
  // long.
  bool has_fast_bf16_dot = true;
  int threads = 1;

  constexpr bool runs(GemmUnit unit) const { return has[static_cast<int>(unit)]; }
};

struct CpuGemmPlan {
  GemmUnit unit;
  int parts;      // bfloat16 terms whose sum is an element of the left operand, exactly
  int left_tile;  // rows of the left operand that are packed and multiplied together
  std::int64_t block_rows;
  std::int64_t block_columns;
  std::int64_t row_blocks;     // of one matrix of the batch
  std::int64_t column_blocks;  //
  std::int64_t blocks;         // of the batch: what threads take
  int slots;                   // blocks that can be worked on at a time
  std::size_t slot_bytes;      // working memory of one
  std::size_t workspace_bytes;
  const char* reason;  // for the unit
  bool right_is_panels;
  bool keeps_left;  // a slot has all panels of a block's rows, for the blocks beside it
};

// Pure: the same arguments give the same plan, on any machine. The bytes of the product depend on
// the plan's unit and on nothing else in it.
CpuGemmPlan plan_gemm_cpu(const CpuGemmProblem& problem, const CpuGemmCapabilities& capabilities);

// The plan with a given unit, whatever would be chosen.
CpuGemmPlan plan_gemm_cpu_with(GemmUnit unit, const CpuGemmProblem& problem, int threads);

// One line for a person.
std::string describe(const CpuGemmPlan& plan);

// Where the parts of a slot of working memory begin; each is aligned to 64 bytes.
struct GemmSlotLayout {
  std::size_t state, panel_row, left_shifts, right_shifts, left_spreads, right_spreads, bias, left,
      right, tiles, bytes;
};
GemmSlotLayout slot_layout(const CpuGemmPlan& plan, std::int64_t k);

}  // namespace mxkern
