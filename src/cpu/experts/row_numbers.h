// cpu/experts/row_numbers.h: which row each of a call's rows stands for, as the CPU reads it.
#pragma once

#include <atomic>
#include <cstdint>

#include "mxkern/core/error.h"

namespace mxkern::cpu {

// Copies `count` numbers to `to` and throws InvalidArgument where one is not -1 to most - 1. Each
// is read once: another thread may write to the caller's at any time. has: what has `most` rows;
// none: what -1 means.
inline void copy_row_numbers(const char* function, const std::int32_t* given, std::int64_t count,
                             std::int64_t most, const char* has, const char* none,
                             std::int32_t* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    auto& row = const_cast<std::int32_t&>(given[i]);
    to[i] = std::atomic_ref<std::int32_t>(row).load(std::memory_order_relaxed);
    check(to[i] >= -1 && to[i] < most, function, ": rows[", i, "] is ", to[i], "; expected 0 to ",
          most - 1, ", as ", has, " has ", most, " rows, or -1 for ", none);
  }
}

}  // namespace mxkern::cpu
