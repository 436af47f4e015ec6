// cpu/instances/avx512_gemm_pack.cc: packing and finishing for the bfloat16 units.
#include "cpu/gemm/finish.h"
#include "cpu/gemm/instances.h"
#include "cpu/gemm/pack.h"

namespace mxkern::cpu::bf16 {

static_assert(facts_of(GemmUnit::avx512_bf16).depth <= max_depth &&
                  facts_of(GemmUnit::amx_bf16).depth <= max_depth,
              "multipliers of a row lie on the stack");
static_assert(facts_of(GemmUnit::avx512_bf16).tile_columns == 2 * lane_count &&
                  facts_of(GemmUnit::amx_bf16).tile_columns == 2 * lane_count,
              "both units share their packing");

void row_shifts(const GemmMatrix& matrix, std::int64_t row, std::int64_t count,
                std::int32_t* shifts, std::int32_t* spreads) {
  cpu::row_shifts(matrix, row, count, shifts, spreads);
}

void pack_left(const GemmMatrix& matrix, const GemmPanel& panel, const std::int32_t* shifts,
               void* out) {
  cpu::pack_left<true>(matrix, panel, shifts, out);
}

void pack_right(const GemmMatrix& matrix, const GemmPanel& panel, const std::int32_t* shifts,
                void* out) {
  cpu::pack_right<true>(matrix, panel, shifts, out);
}

bool are_at_least(float least, const float* sums, int rows, int columns) {
  return tile_is_at_least(least, sums, rows, columns);
}

void finish(const GemmFinish& finish, const float* sums, int rows, int columns,
            const std::int32_t* left_shifts, const std::int32_t* right_shifts, const float* bias,
            void* out) {
  finish_tile(finish, sums, rows, columns, left_shifts, right_shifts, bias, out);
}

}  // namespace mxkern::cpu::bf16
