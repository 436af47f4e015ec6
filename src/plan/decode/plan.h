// plan/decode/plan.h: how a product of few tokens is cut up, as a value.
#pragma once

#include <cstdint>

#include "mxkern/core/dtype.h"
#include "mxkern/numerics/scheme.h"

namespace mxkern {

// Thread blocks take some tiles of rows each, and divide K among the thread blocks of a cluster and
// then among their warps.
struct DecodePlan {
  int tokens;      // of a thread block: 8, 16, 32 or 64; or one of DecodeSm90Shape
  int row_tiles;   // of a thread block
  int warp_tiles;  // of rows, that a warp takes at a time
  int log2_parts;  // of K, of a thread block
  int log2_ranks;  // of K, of a cluster
  int stages;      // tiles of weights under way to a warp
  int x_stages;    // tiles of tokens under way to a thread block; 0: each warp has its own
  int shared_bytes;
  // Groups of rows that do not exist, where thread blocks of two kernels share a multiprocessor:
  // with one thread block on each, the next kernel's can only spread as evenly.
  int idle_groups;
  // For Hopper, and the tensor cores of its warpgroups: tokens are of DecodeSm90Shape's sizes.
  bool on_sm90 = false;

  friend constexpr bool operator==(const DecodePlan&, const DecodePlan&) = default;
};

// Pure. For `batch` products of `tokens` rows with weights [rows, columns].
DecodePlan plan_decode(Scheme scheme, std::int64_t batch, std::int64_t tokens, std::int64_t rows,
                       std::int64_t columns, int processors);

// Where tokens belong to groups: of thread blocks of 8 or 16 tokens, so many teams of warps that
// divide K. Without stages: there is no room for it.
DecodePlan decode_groups_plan(Scheme scheme, int tokens, int row_tiles, int log2_parts);

// For Hopper, where a product may take the tensor cores of warpgroups: by whichever kernel is the
// fastest. On these a thread block's warpgroups take 64 rows each or parts of K, a stage of tokens
// is 128 columns.
DecodePlan plan_decode_sm90(Scheme scheme, std::int64_t batch, std::int64_t tokens,
                            std::int64_t rows, std::int64_t columns, int processors,
                            DType x_dtype = DType::bfloat16);

// By the kernels that a device has: those for Hopper where may_use_sm90.
inline DecodePlan plan_decode_on(bool may_use_sm90, Scheme scheme, std::int64_t batch,
                                 std::int64_t tokens, std::int64_t rows, std::int64_t columns,
                                 int processors, DType x_dtype) {
  return may_use_sm90 ? plan_decode_sm90(scheme, batch, tokens, rows, columns, processors, x_dtype)
                      : plan_decode(scheme, batch, tokens, rows, columns, processors);
}

// The way of these with so many tokens and warpgroups a thread block; less than two stages: there
// is no room for it.
DecodePlan decode_sm90_plan(Scheme scheme, int tokens, int warpgroups, int log2_parts,
                            int log2_ranks);

// Rows of a thread block that multiplies so many folded ones, and its warpgroups, for what
// registers allow.
int folded_size(std::int64_t rows);
constexpr int folded_warpgroups(int size) { return size == 64 ? 4 : 2; }

// Of folded rows, on FP8 tensor cores of Hopper.
DecodePlan plan_decode_folded(Scheme scheme, std::int64_t batch, std::int64_t tokens,
                              std::int64_t rows, std::int64_t columns, int processors);

// Whether a product may take the tensor cores of Hopper's warpgroups. It needs code for 9.0a on a
// device of 9.0.
constexpr bool may_use_decode_sm90(DType x_dtype, std::int64_t tokens) {
  return x_dtype != DType::float32 && tokens > 16;
}

// The most tokens of a group.
int decode_sm90_group(std::int64_t tokens);

// Thread blocks that run at a time: clusters lie in groups of multiprocessors that are not all of
// one size, so that some of these stay idle. Of 132, 120 hold clusters of four.
constexpr std::int64_t cluster_slots(int processors, int log2_ranks) {
  return log2_ranks < 2 ? processors : processors - processors / 11;
}

}  // namespace mxkern
