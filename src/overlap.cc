// overlap.cc: the checks that outputs have memory of their own.
#include "overlap.h"

#include "mxkern/core/error.h"

namespace mxkern {

Occupied::Occupied(const char* name, const Buffer& x) : Occupied(name, "", x.data, 0) {
  if (x.shape.size() == 0) return;
  const std::int64_t last =
      (x.shape.batch - 1) * x.batch_stride + (x.shape.rows - 1) * x.row_stride + x.shape.columns;
  end = begin + static_cast<std::size_t>(last) * size_of(x.dtype);
}

OccupiedParts::OccupiedParts(const char* argument, const BlockScaled& q) {
  const auto sizes = BlockScaled::sizes(q.scheme, q.shape, q.scale_layout);
  part[0] = {argument, ".codes", q.codes, static_cast<std::size_t>(sizes.codes)};
  part[1] = {argument, ".scales", q.scales, static_cast<std::size_t>(sizes.scales)};
  part[2] = {argument, ".tensor_scale", q.tensor_scale,
             static_cast<std::size_t>(sizes.tensor_scale)};
}

void check_apart(const char* function, const Occupied& out, const Occupied& other) {
  const bool empty = out.begin == out.end || other.begin == other.end;
  check(empty || out.end <= other.begin || other.end <= out.begin, function, ": ", out.argument,
        out.part, " overlaps ", other.argument, other.part,
        "; expected memory of its own; write to another buffer and copy it");
}

void check_apart(const char* function, std::span<const Occupied> outs, const char* argument,
                 const Buffer& input) {
  for (std::size_t i = 0; i < outs.size(); ++i) {
    if (!has_gaps(input)) check_apart(function, outs[i], {argument, input});
    for (std::size_t j = 0; j < i; ++j) check_apart(function, outs[i], outs[j]);
  }
}

}  // namespace mxkern
