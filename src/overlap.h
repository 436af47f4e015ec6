// overlap.h: the checks that outputs have memory of their own.
#pragma once

#include <cstddef>
#include <span>

#include "mxkern/core/buffer.h"
#include "mxkern/tensor/block_scaled.h"
#include "region.h"

namespace mxkern {

// The bytes that an argument, or a part of one, occupies.
struct Occupied {
  const char* argument = "";
  const char* part = "";  // ".codes", or empty
  Region region;

  Occupied() = default;
  Occupied(const char* name, const char* part_name, const void* data, std::size_t bytes)
      : argument(name), part(part_name), region(data, bytes) {}
  // A checked buffer.
  Occupied(const char* name, const Buffer& x) : argument(name), region(x) {}
};

// Codes, scales and tensor scale.
struct OccupiedParts {
  Occupied part[3];

  OccupiedParts(const char* argument, const BlockScaled& q);
};

// Throws InvalidArgument where an output shares bytes with the other.
void check_apart(const char* function, const Occupied& out, const Occupied& other);

// The same for all of `outs`, with an input and one another.
void check_apart(const char* function, std::span<const Occupied> outs, const Occupied& input);

// Throws InvalidArgument where out, of x's shape, shares bytes with x and is not x itself.
void check_apart_or_same(const char* function, const Buffer& out, const Buffer& x);

}  // namespace mxkern
