// check/arguments.h: the argument checks that the operations share: kinds, shapes, devices,
// alignment, and that outputs have memory of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>

#include "mxkern/core/buffer.h"
#include "mxkern/core/error.h"
#include "mxkern/tensor/block_scaled.h"
#include "mxkern/tensor/planned_operand.h"

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

// How messages show them. A check takes the values: their text is made only where it fails.
std::ostream& operator<<(std::ostream& stream, const Shape& shape);
std::ostream& operator<<(std::ostream& stream, Device device);

// No extent is negative, and the number of elements is one that memory could hold.
void check_shape(const char* function, const char* argument, const Shape& shape);

// A valid shape, and a dtype, or a scheme and a layout, that there are. Memory is not looked at.
void check_kind(const char* function, const char* argument, const Buffer& buffer);
void check_kind(const char* function, const char* argument, const BlockScaled& q);

// Strides that do not fold rows and that addresses can be calculated with.
void check_strides(const char* function, const char* argument, const Buffer& buffer);

// Memory where there are elements, of a valid shape and dtype.
void check_memory(const char* function, const char* argument, const Buffer& buffer);

// All three: a valid shape and dtype, memory, strides.
void check_buffer(const char* function, const char* argument, const Buffer& buffer);

// A checked buffer whose strides all mean something: nothing is known of those of a single row or
// matrix. A row's becomes that to the next matrix, so that single rows anywhere are those of one
// matrix; else they become what dense memory has.
Buffer with_strides(const Buffer& buffer);
PlannedTensor with_strides(const PlannedTensor& tensor);

// Rows and matrices of an output, a checked buffer, do not overlap: matrices follow one another, or
// lie in the gaps between rows.
void check_output(const char* function, const char* argument, const Buffer& buffer);

// A float32 that is null or lies at a multiple of its size. `part` of an argument, as ".scales".
void check_aligned(const char* function, const char* argument, const char* part, const void* value,
                   std::size_t size = sizeof(float));

// Memory for each part that has bytes, of a valid shape, scheme and layout; and all of it.
void check_memory(const char* function, const char* argument, const BlockScaled& q);
void check_block_scaled(const char* function, const char* argument, const BlockScaled& q);

// Of an output.
void check_writable(const char* function, const char* argument, bool is_read_only);

void check_same_shape(const char* function, const char* argument, const Shape& shape,
                      const Shape& wanted);

void check_same_device(const char* function, const char* argument, Device device, Device wanted);

// `out` is an output of x's shape, dtype and device.
void check_output_like(const char* function, const Buffer& out, const Buffer& x);

// Whether this build of the library has the CUDA backend.
#if defined(MXKERN_HAS_CUDA)
inline constexpr bool has_cuda = true;
#else
inline constexpr bool has_cuda = false;
#endif

// Throws for what is no device at all.
void check_device_type(const char* function, Device device);

// Throws Unsupported for a device that this build of the library cannot work on, too.
void check_device(const char* function, Device device);

}  // namespace mxkern
