// plan_gemm.h: how a matrix product is computed, as a value: which unit multiplies, in which
// blocks, with how much working memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

#include "mxkern/core/dtype.h"
#include "mxkern/numerics/scheme.h"

namespace mxkern {

// What multiplies: float32 vectors of an instruction set, or dot products of bfloat16. For a few
// rows, float32 vectors along K.
enum class GemmUnit : std::uint8_t {
  baseline,
  avx2,
  avx512,
  avx512_bf16,
  amx_bf16,
  baseline_few_rows,
  avx2_few_rows,
  avx512_few_rows
};

inline constexpr GemmUnit all_gemm_units[] = {GemmUnit::baseline,      GemmUnit::avx2,
                                              GemmUnit::avx512,        GemmUnit::avx512_bf16,
                                              GemmUnit::amx_bf16,      GemmUnit::baseline_few_rows,
                                              GemmUnit::avx2_few_rows, GemmUnit::avx512_few_rows};

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
  switch (unit) {
    case GemmUnit::baseline: return {"baseline", 4, 8, 4, 256, 256, 512, 8, 8};
    case GemmUnit::avx2: return {"avx2", 6, 16, 4, 256, 384, 512, 35, 15};
    case GemmUnit::avx512: return {"avx512", 12, 32, 4, 256, 384, 512, 70, 15};
    case GemmUnit::avx512_bf16: return {"avx512_bf16", 12, 32, 2, 512, 384, 512, 140, 25};
    case GemmUnit::amx_bf16: return {"amx_bf16", 32, 32, 2, 512, 512, 1024, 1000, 200};
    case GemmUnit::baseline_few_rows: return {"baseline_few_rows", 4, 8, 4, 1024, 256, 512, 8, 4};
    case GemmUnit::avx2_few_rows: return {"avx2_few_rows", 4, 16, 4, 1024, 384, 512, 35, 5};
    case GemmUnit::avx512_few_rows: return {"avx512_few_rows", 8, 32, 4, 1024, 384, 512, 70, 5};
  }
  return {};
}

// Of one tile, as a rule. They decode the rows of the right operand where these lie.
constexpr bool is_for_few_rows(GemmUnit unit) { return unit >= GemmUnit::baseline_few_rows; }

constexpr const char* name_of(GemmUnit unit) { return facts_of(unit).name; }

// Multiplies bfloat16 elements; the others multiply float32.
constexpr bool takes_bfloat16(GemmUnit unit) { return facts_of(unit).element_bytes == 2; }

struct GemmProblem {
  std::int64_t batch = 1;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  bool left_is_plain = false;
  Scheme left_scheme = Scheme::mxfp8_e4m3;  // where it is not
  DType left_dtype = DType::float32;        // where it is
  Scheme right_scheme = Scheme::mxfp8_e4m3;
  DType out_dtype = DType::float32;
};

struct GemmCapabilities {
  bool has[std::size(all_gemm_units)] = {true};  // by unit
  // AMD multiplies two bfloat16 in the time of one float32; Intel's instruction takes twice as
  // long.
  bool has_fast_bf16_dot = true;
  int threads = 1;

  constexpr bool runs(GemmUnit unit) const { return has[static_cast<int>(unit)]; }
};

struct GemmPlan {
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
};

// Pure: the same arguments give the same plan, on any machine. The bytes of the product depend on
// the plan's unit and on nothing else in it.
GemmPlan plan_gemm(const GemmProblem& problem, const GemmCapabilities& capabilities);

// The plan with a given unit, whatever would be chosen.
GemmPlan plan_gemm_with(GemmUnit unit, const GemmProblem& problem, int threads);

// One line for a person.
std::string describe(const GemmPlan& plan);

// Where the parts of a slot of working memory begin; each is aligned to 64 bytes.
struct GemmSlotLayout {
  std::size_t left_shifts, right_shifts, left_spreads, right_spreads, bias, left, right, tiles,
      bytes;
};
GemmSlotLayout slot_layout(const GemmPlan& plan, std::int64_t k);

}  // namespace mxkern
