// cpu/gemm/float32_unit.h: the kernels of the units that multiply float32 vectors.
#pragma once

#include "cpu/gemm/finish.h"
#include "cpu/gemm/instances.h"
#include "cpu/gemm/multiply_few_rows.h"
#include "cpu/gemm/multiply_float32.h"
#include "cpu/gemm/pack.h"

namespace mxkern::cpu {
namespace {

template <GemmUnit Unit>
constexpr GemmKernels float32_kernels() {
  constexpr GemmUnitFacts facts = facts_of(Unit);
  static_assert(facts.tile_columns == 2 * lane_count, "a tile is two vectors wide");
  static_assert(facts.depth <= max_depth, "multipliers of a row lie on the stack");
  return {Unit,
          row_shifts,
          pack_left<false>,
          pack_right<false>,
          do_nothing,
          do_nothing,
          multiply_float32<facts.tile_rows>,
          tile_is_at_least,
          finish_tile};
}

// For few rows: those of the right operand are decoded where they lie.
template <GemmUnit Unit>
constexpr GemmKernels few_row_kernels() {
  constexpr GemmUnitFacts facts = facts_of(Unit);
  static_assert(facts.tile_columns == row_floats && facts.depth <= max_depth);
  return {Unit,
          row_shifts,
          pack_left<false>,
          keep_right_rows,
          do_nothing,
          do_nothing,
          multiply_decode<facts.tile_rows>,
          tile_is_at_least,
          finish_tile};
}

}  // namespace
}  // namespace mxkern::cpu
