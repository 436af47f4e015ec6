// cpu/runtime/cache.h: what is known of the processor's caches.
#pragma once

#include <cstdint>

namespace mxkern::cpu {

inline constexpr int cache_line = 64;  // bytes

// Whether a result is so large that it is better written past the caches.
constexpr bool are_more_than_caches(std::int64_t bytes) { return bytes >= std::int64_t{8} << 20; }

}  // namespace mxkern::cpu
