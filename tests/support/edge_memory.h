// tests/support/edge_memory.h: memory with a page behind it that nobody can read or write.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <new>

namespace mxkern::test {

// A byte more than there are ends the process.
class EdgeMemory {
 public:
  explicit EdgeMemory(std::size_t bytes) : bytes_(bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    used_ = (bytes + page - 1) / page * page;
    mapped_ = used_ + page;
    void* start =
        mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) throw std::bad_alloc();
    start_ = static_cast<std::byte*>(start);
    if (mprotect(start_ + used_, page, PROT_NONE) != 0) {
      munmap(start_, mapped_);
      throw std::bad_alloc();
    }
  }
  ~EdgeMemory() { munmap(start_, mapped_); }
  EdgeMemory(const EdgeMemory&) = delete;
  EdgeMemory& operator=(const EdgeMemory&) = delete;

  std::byte* data() const { return start_ + used_ - bytes_; }

 private:
  std::size_t bytes_, used_, mapped_;
  std::byte* start_;
};

}  // namespace mxkern::test
