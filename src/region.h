// region.h: the bytes of a view of memory, and whether two views share any.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mxkern/core/buffer.h"

namespace mxkern {

// `length` bytes from `begin` on, `inner.count` times `inner.stride` apart, and all of that
// `outer.count` times. Addresses are numbers: comparing pointers into different objects is not
// defined.
struct Region {
  struct Repeat {
    std::int64_t count = 1, stride = 0;
  };

  std::uintptr_t begin = 0;
  std::int64_t length = 0;
  Repeat inner, outer;  // the inner ones lie between two of the outer, where there are two

  Region() = default;
  Region(const void* data, std::size_t bytes)
      : begin(reinterpret_cast<std::uintptr_t>(data)), length(static_cast<std::int64_t>(bytes)) {}
  // A checked buffer. Rows of a matrix that lie among those of another, but not in steps of whole
  // rows, count with what is between them.
  explicit Region(const Buffer& x);

  std::int64_t inner_extent() const { return (inner.count - 1) * inner.stride + length; }
  std::int64_t extent() const { return (outer.count - 1) * outer.stride + inner_extent(); }
};

bool overlap(const Region& a, const Region& b);

}  // namespace mxkern
