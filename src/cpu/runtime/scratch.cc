// cpu/runtime/scratch.cc: the memory that a thread keeps.
#include "cpu/runtime/scratch.h"

#include <memory>

#include "cpu/runtime/cache.h"

namespace mxkern::cpu {
namespace {

constexpr std::align_val_t alignment{cache_line};

struct Free {
  void operator()(void* memory) const { ::operator delete(memory, alignment); }
};

}  // namespace

void* scratch_memory() {
  thread_local std::unique_ptr<void, Free> memory;
  if (memory == nullptr) memory.reset(::operator new(scratch_bytes, alignment));
  return memory.get();
}

}  // namespace mxkern::cpu
