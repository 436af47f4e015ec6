// overlap.h: the checks that outputs have memory of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "mxkern/core/buffer.h"
#include "mxkern/tensor/block_scaled.h"

namespace mxkern {

// The bytes that an argument, or a part of one, occupies. As numbers: comparing pointers into
// different objects is not defined.
struct Occupied {
  const char* argument;
  const char* part;  // ".codes", or empty
  std::uintptr_t begin = 0, end = 0;

  Occupied() : Occupied("", "", nullptr, 0) {}
  Occupied(const char* name, const char* part_name, const void* data, std::size_t bytes)
      : argument(name),
        part(part_name),
        begin(reinterpret_cast<std::uintptr_t>(data)),
        end(begin + bytes) {}
  // A checked buffer, from its first element to its last.
  Occupied(const char* name, const Buffer& x);
};

// Codes, scales and tensor scale.
struct OccupiedParts {
  Occupied part[3];

  OccupiedParts(const char* argument, const BlockScaled& q);
};

// Rows with gaps between them may lie in each other's gaps.
inline bool has_gaps(const Buffer& x) { return x.shape.rows > 1 && x.row_stride > x.shape.columns; }

// Throws InvalidArgument where an output shares bytes with the other.
void check_apart(const char* function, const Occupied& out, const Occupied& other);

// The same for all of `outs` and one another, and for a buffer that has no gaps.
void check_apart(const char* function, std::span<const Occupied> outs, const char* argument,
                 const Buffer& input);

}  // namespace mxkern
