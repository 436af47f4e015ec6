// region.cc: the bytes of a view of memory, and whether two views share any.
#include "region.h"

#include <algorithm>
#include <utility>

namespace mxkern {
namespace {

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0 ? 1 : 0); }

// From the first byte of `a` to that of `b`.
std::int64_t distance(const Region& a, const Region& b) {
  return static_cast<std::int64_t>(b.begin - a.begin);
}

Region moved(Region region, std::int64_t bytes) {
  region.begin += static_cast<std::uintptr_t>(bytes);
  return region;
}

// Numbers i for which `extent` bytes at i * stride meet the `other` bytes at `from`.
struct Steps {
  std::int64_t first, last;

  Steps(std::int64_t stride, std::int64_t extent, std::int64_t from, std::int64_t other)
      : first(floor_div(from - extent, stride) + 1), last(floor_div(from + other - 1, stride)) {}

  Steps within(std::int64_t low, std::int64_t high) const {
    Steps steps = *this;
    steps.first = std::max(first, low);
    steps.last = std::min(last, high);
    return steps;
  }
};

// Both without outer repetition.
bool rows_overlap(const Region& a, const Region& b) {
  if (b.inner.count < a.inner.count) return rows_overlap(b, a);
  if (b.inner.count == 1) return true;
  const std::int64_t stride = b.inner.stride;
  if (a.inner.count == 1 || a.inner.stride == stride) {
    // Row i of one meets row j of the other where i - j is one of these.
    const Steps steps = Steps(stride, a.length, distance(a, b), b.length)
                            .within(1 - b.inner.count, a.inner.count - 1);
    return steps.first <= steps.last;
  }
  Region row = a;
  row.inner = {};
  const Steps steps =
      Steps(a.inner.stride, a.length, distance(a, b), b.extent()).within(0, a.inner.count - 1);
  for (std::int64_t i = steps.first; i <= steps.last; ++i) {
    if (overlap(moved(row, i * a.inner.stride), b)) return true;
  }
  return false;
}

}  // namespace

Region::Region(const Buffer& x) : begin(reinterpret_cast<std::uintptr_t>(x.data)) {
  const Shape& shape = x.shape;
  if (shape.size() == 0) return;
  const auto size = static_cast<std::int64_t>(size_of(x.dtype));
  length = shape.columns * size;
  if (shape.rows > 1) inner = {shape.rows, x.row_stride * size};
  if (shape.batch > 1 && x.batch_stride > 0) outer = {shape.batch, x.batch_stride * size};
  if (inner.count > 1 && outer.count > 1 && outer.stride < inner.stride) std::swap(inner, outer);
  // What leaves no gap is one stretch, and equal steps are one repetition.
  for (Repeat* repeat : {&inner, &outer}) {
    if (repeat->stride > length || (repeat == &outer && inner.count > 1)) continue;
    length += (repeat->count - 1) * repeat->stride;
    *repeat = {};
  }
  if (inner.count == 1) {
    inner = std::exchange(outer, {});
  } else if (outer.count > 1 && outer.stride <= inner.count * inner.stride &&
             outer.stride % inner.stride == 0) {
    inner.count += (outer.count - 1) * (outer.stride / inner.stride);
    outer = {};
  } else if (outer.count > 1 && outer.stride < inner_extent()) {
    length = extent();
    inner = outer = {};
  }
}

bool overlap(const Region& a, const Region& b) {
  const std::int64_t between = distance(a, b);
  if (a.length == 0 || b.length == 0 || between >= a.extent() || -between >= b.extent()) {
    return false;
  }
  if (a.outer.count == 1 && b.outer.count == 1) return rows_overlap(a, b);
  if (a.outer.count == 1) return overlap(b, a);
  Region matrix = a;
  matrix.outer = {};
  const Steps steps =
      Steps(a.outer.stride, a.inner_extent(), between, b.extent()).within(0, a.outer.count - 1);
  for (std::int64_t i = steps.first; i <= steps.last; ++i) {
    if (overlap(moved(matrix, i * a.outer.stride), b)) return true;
  }
  return false;
}

}  // namespace mxkern
