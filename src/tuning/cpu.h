// tuning/cpu.h: figures measured on CPUs, by which plans of matrix products choose units and
// blocks. From `python -m bench gemm` on the machines of bench/results. Only the unit changes
// bytes.
#pragma once

#include <cstdint>

namespace mxkern::tuning::cpu {

// What a unit does on one core, roughly: multiplications of a nanosecond, and how many of them take
// as long as packing one element.
struct UnitSpeed {
  int multiplies_per_ns, pack_cost;
};
inline constexpr UnitSpeed baseline = {8, 8}, avx2 = {35, 15}, avx512 = {70, 15},
                           avx512_bf16 = {140, 25}, amx_bf16 = {1000, 200};
// Few rows are decoded where they lie, and packed as floats.
inline constexpr UnitSpeed baseline_few_rows = {8, 4}, avx2_few_rows = {35, 5},
                           avx512_few_rows = {70, 5};

// The largest blocks, in elements: a panel of one tile's columns stays in the L1 cache, both
// panels of a block in L2.
struct UnitBlock {
  int depth, rows, columns;
};
inline constexpr UnitBlock baseline_block = {256, 256, 512}, float32_block = {256, 384, 512},
                           bf16_block = {512, 384, 512}, amx_block = {512, 512, 1024},
                           baseline_few_rows_block = {1024, 256, 512},
                           few_rows_block = {1024, 384, 512};

// Panels are read in long pieces along K, as prefetching likes it.
inline constexpr UnitBlock panels_block = {16384, 48, 512};

// With panels: bytes of weights that are worth a block, and blocks of a thread that even them out.
inline constexpr std::int64_t panel_block_bytes = 128 << 10, panel_blocks_per_thread = 16;

// With panels: most rows that are multiplied with codes as they are decoded. Beyond, decoding once
// and keeping what comes of it takes less time.
inline constexpr std::int64_t avx2_panel_rows = 16, avx512_panel_rows = 48,
                              avx512_bf16_panel_rows = 48;
// The same where AMX tiles multiply more rows. An estimate: these have not been timed.
inline constexpr std::int64_t panel_rows_beside_amx = 16;

// The largest left operand of a block that is put together once for all columns, in bytes.
inline constexpr std::int64_t kept_left_bytes = 5 << 20;

// Nanoseconds to wake the other threads and to wait for them.
inline constexpr double parallel_ns = 10000;

// Beyond so many blocks a thread there is nothing left to even out: what is tried of rows and of
// columns, and of both.
inline constexpr std::int64_t blocks_per_thread = 2, most_blocks_per_thread = 16;

}  // namespace mxkern::tuning::cpu
