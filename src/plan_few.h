// plan_few.h: how a product of few tokens is cut up, as a value.
#pragma once

#include <cstdint>

#include "mxkern/numerics/scheme.h"

namespace mxkern {

// Thread blocks take some tiles of rows each, and divide K among the thread blocks of a cluster and
// then among their warps.
struct FewPlan {
  int tokens;      // of a thread block: 8, 16, 32 or 64
  int row_tiles;   // of a thread block
  int log2_parts;  // of K, of a thread block; row_tiles << log2_parts warps multiply
  int log2_ranks;  // of K, of a cluster
  int stages;      // tiles of weights under way to a warp
  int x_stages;    // pieces of the tokens under way to a thread block
  int shared_bytes;

  friend constexpr bool operator==(const FewPlan&, const FewPlan&) = default;
};

// Pure. For `batch` products of `tokens` rows with weights [rows, columns].
FewPlan plan_few(Scheme scheme, std::int64_t batch, std::int64_t tokens, std::int64_t rows,
                 std::int64_t columns, int processors);

}  // namespace mxkern
