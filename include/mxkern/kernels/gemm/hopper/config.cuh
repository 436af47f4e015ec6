// mxkern/kernels/gemm/hopper/config.cuh: the tile of a thread block and what its shared memory
// holds.
#pragma once

#include <cstdint>
#include <type_traits>

#include "mxkern/core/dtype.h"
#include "mxkern/kernels/gemm/hopper/epilogue.cuh"
#include "mxkern/kernels/gemm/hopper/split_k.cuh"
#include "mxkern/kernels/gemm/hopper/row_scales.cuh"
#include "mxkern/numerics/format.h"

namespace mxkern::kernels {

// A thread block computes tiles of 64 rows for each of its two warpgroups and Columns columns;
// one more warpgroup has a warp that loads. Loads bring 128 bytes of K at a time for every row of
// both operands. A cluster's blocks need the same rows of one operand, the larger side of the tile;
// each loads a part of them for all.
// Transposed: what is stored is the transpose of the product.
template <class LeftElement, class RightElement, int Columns, bool Transposed = false>
struct GemmSm90Config {
  using Left = LeftElement;
  using Right = RightElement;
  static constexpr int groups = 2;
  static constexpr int rows = 64 * groups;
  static constexpr int columns = Columns;
  static constexpr bool is_transposed = Transposed;
  static constexpr bool shares_left = rows >= columns;  // blocks of a cluster lie side by side
  static constexpr int cluster = 2;                     // at most
  // The tensor cores add FP8 products with 14 bits; sums of 128 go on in float32.
  static constexpr bool promotes = !std::is_same_v<Right, bfloat16>;
  // Codes of the left operand become bfloat16 on their way to the tensor cores.
  static constexpr bool decodes = !promotes && !std::is_same_v<Left, bfloat16>;
  // What a thread's sums leave room for: the products of two steps, of one, or of half of its
  // columns.
  static constexpr bool has_two_places = promotes && columns <= 128;
  static constexpr bool has_halves = promotes && columns > 192;
  // Whether the product may make rows of its operands ready itself: see gemm/hopper/overlap.cuh.
  // With products in two places there are too few registers to fold in.
  static constexpr bool folds_late_rows =
      has_halves && std::is_same_v<Left, E4M3> && std::is_same_v<Right, E4M3>;
  static constexpr bool has_late_rows = !promotes || folds_late_rows;
  static constexpr int log2_rows = 7;
  static_assert(rows == 1 << log2_rows && (!folds_late_rows || columns == 2 * rows));
  // Whether a tile's last step may end before its elements do: see gemm/hopper/grouped_columns.cuh.
  static constexpr bool cuts_steps = false;
  // Whether bfloat16 sums are zeros before the first product, where the compiler would spill else.
  static constexpr bool clears_sums = false;
  static constexpr int k = promotes ? 128 : 64;  // elements in 128 bytes
  // A tile's parts start at multiples of so many steps: scales of decoded codes come for four.
  static constexpr int step_unit = promotes ? 1 : 4;
  static constexpr int left_row_bytes = decodes ? k : 128;
  static constexpr int left_bytes = rows * left_row_bytes, right_bytes = columns * 128;
  static constexpr int stage_bytes = left_bytes + right_bytes;
  // Boxes are lower where tiles have fewer rows: the copy engine writes zeros for rows that are not
  // there, and takes longer for it than for rows. So all tiles of a product have as many.
  static constexpr int left_boxes = shares_left ? cluster : 1;
  static constexpr int left_box = rows / left_boxes;
  static constexpr int right_box = shares_left ? columns : columns / cluster;
  // Sums of folded rows need no check, and where codes are decoded there is no register for one.
  static constexpr RoundedFirst rounded = promotes  ? RoundedFirst::all
                                          : decodes ? RoundedFirst::none
                                                    : RoundedFirst::large;
  using Finisher =
      Finish<rows, columns, columns % 128 == 0 ? 2 : columns / 64, rounded, Transposed>;
  static constexpr int staging_bytes = 4 * groups * Finisher::staging_bytes;
  static constexpr int factor_bytes = sizeof(typename Finisher::Factors);
  static constexpr int barrier_bytes = Transposed ? 256 : 384;
  static constexpr int part_bytes = sizeof(PartTable);
  static constexpr int copied_scale_bytes = 4 * groups * DecodedRows::copied_bytes;
  static constexpr int decoded_row_bytes =
      4 * groups * DecodedRows::most_tiles * int{sizeof(DecodedRows)};
  static constexpr int decoded_bytes = decodes ? decoded_row_bytes + copied_scale_bytes : 0;
  static constexpr int other_bytes =
      staging_bytes + factor_bytes + part_bytes + barrier_bytes + decoded_bytes;
  static constexpr int stages = (227 * 1024 - other_bytes) / stage_bytes;
  static constexpr int shared_bytes = stages * stage_bytes + other_bytes;
  // Where things lie behind the stages.
  static constexpr int staging_offset = stages * stage_bytes;
  static constexpr int full_offset = staging_offset + staging_bytes;  // barriers of 8 bytes
  static constexpr int empty_offset = full_offset + stages * 8;
  static constexpr int factors_full_offset = empty_offset + stages * 8;
  static constexpr int factors_empty_offset = factors_full_offset + 8;
  static constexpr int rows_full_offset = factors_empty_offset + 8;
  static constexpr int cut_offset = rows_full_offset + 8;
  static constexpr int loads_offset = cut_offset + stages * 8;  // a warp's, one behind the other
  static constexpr int parts_offset = full_offset + barrier_bytes;
  static constexpr int factors_offset = parts_offset + part_bytes;
  static constexpr int decoded_offset = factors_offset + factor_bytes;
  static constexpr int copied_scales_offset = decoded_offset + decoded_row_bytes;
  static_assert((3 * stages + 3 + 4 * groups * Finisher::loads) * 8 <= barrier_bytes,
                "room for all barriers");
  static constexpr int threads = 128 * (groups + 1);
  // Of 65536 registers: what a thread that multiplies has, and one that loads.
  static constexpr int consumer_registers = has_halves ? 224 : 232;
  static constexpr int producer_registers = has_halves ? 56 : 40;
  static constexpr int launch_registers = 65536 / threads / 8 * 8;
  static_assert(groups * (consumer_registers - launch_registers) <=
                    launch_registers - producer_registers,
                "threads that multiply would wait forever for registers that nobody gives");
};

// Which phase of the stages' barriers comes next: a bit for each. Every tile begins with stage 0.
struct RingPhases {
  std::uint32_t bits = 0;

  __device__ __forceinline__ std::uint32_t of(int stage) const { return bits >> stage & 1; }
  __device__ __forceinline__ void advance(int stage) { bits ^= 1u << stage; }
};

}  // namespace mxkern::kernels
