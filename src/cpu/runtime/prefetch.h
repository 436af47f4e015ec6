// cpu/runtime/prefetch.h: asking for memory ahead of time where the processor does not foresee its
// use.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/runtime/cache.h"

namespace mxkern::cpu {

// Caches from the first or the second level on.
inline constexpr int first_level = 3, second_level = 2;

// Asks for `rows` stretches of `bytes`, `stride` bytes apart, to be read or (1) written. Always
// inlined: GCC takes a function that only prefetches for one without effect, and drops its calls.
template <int write = 0, int level = first_level>
[[gnu::always_inline]] inline void prefetch_rows(const void* start, std::int64_t stride,
                                                 std::int64_t rows, std::int64_t bytes) {
  const auto* row = static_cast<const std::byte*>(start);
  for (std::int64_t i = 0; i < rows; ++i, row += stride) {
    for (std::int64_t b = 0; b < bytes; b += cache_line) __builtin_prefetch(row + b, write, level);
  }
}

}  // namespace mxkern::cpu
