// cpu/quantize/patch.h: a small piece of x as one direction of quantize sees it: turned into lines,
// transformed, with its random words. It lives in a thread's scratch() and in the first-level
// cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kernel_table.h"
#include "cpu/quantize/tiles.h"
#include "mxkern/core/buffer.h"
#include "mxkern/hadamard.h"

namespace mxkern::cpu {

// How a direction reads x. `signs.size` is 0 where there is no transform.
struct LineSource {
  Buffer x;
  bool transposed;  // lines are columns of x
  HadamardSigns signs;
  const KernelTable& kernels;

  // Whether lines lie in x as they are wanted: tiles of any size are read in place.
  bool is_direct() const { return !transposed && signs.size == 0; }
  // Whether lines across memory can be transformed as they lie.
  bool transforms_across() const {
    return transposed && signs.size > 0 && signs.size <= AcrossMemory::rows;
  }
};

// The largest part of a tile that a patch holds; `group` lines stay together.
TileShape patch_shape(const LineSource& source, const Tile& tile, std::int64_t group);

// The same where lines are transformed as they lie.
inline constexpr TileShape across_patch = {AcrossMemory::rows, AcrossMemory::most};

// Lines of elements of x's dtype; the stride counts elements.
struct Lines {
  const std::byte* data;
  std::int64_t stride;
  std::int64_t count;
  std::int64_t elements;
};

// Returns the lines of a part of x, of any shape. Requires that the source is direct.
Lines lines_in_place(const LineSource& source, const Tile& part);

class Patch {
 public:
  static constexpr std::int64_t capacity = largest_block * line_unit;  // elements

  // The lines of a part of x, of patch_shape.
  Lines load(const LineSource& source, const Tile& part);

  // The rows of a part of across_patch, whose columns are transformed.
  Lines load_across(const LineSource& source, const Tile& part);

  // The random words of the elements of a part of patch_shape, in the order of its lines.
  const std::uint16_t* load_random(const LineSource& source, const Tile& part, std::uint64_t seed,
                                   std::uint64_t offset);

  // Returns the choice_bytes that four_over_six needs for squares of columns.
  std::byte* choice() { return choice_; }

 private:
  static_assert(across_patch.rows * across_patch.columns <= capacity);

  alignas(64) std::byte elements_[capacity * sizeof(float)];
  alignas(64) std::uint16_t random_[capacity];
  alignas(64) std::uint16_t transposed_random_[capacity];
  alignas(64) std::byte choice_[choice_bytes];
};

}  // namespace mxkern::cpu
