// cpu/runtime/scratch.h: memory of a thread, in which pieces of a tensor are put together.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>

#include "cpu/kernel_table.h"

namespace mxkern::cpu {

// Not on its stack: musl's threads have 128 KiB, and programs with many threads give them less.
inline constexpr std::size_t scratch_bytes = 98 * 1024 * largest_block / 32;

// Returns the scratch_bytes that the calling thread keeps, aligned to a cache line. Throws
// std::bad_alloc.
void* scratch_memory();

// Returns a T in that memory. It is valid until the same thread asks for another one.
template <class T>
T& scratch() {
  static_assert(sizeof(T) <= scratch_bytes, "it has to fit into a thread's memory");
  static_assert(std::is_trivially_destructible_v<T>, "nobody destroys it");
  return *new (scratch_memory()) T;
}

}  // namespace mxkern::cpu
