// overlap.cc: the checks that outputs have memory of their own.
#include "overlap.h"

#include "mxkern/core/error.h"

namespace mxkern {

OccupiedParts::OccupiedParts(const char* argument, const BlockScaled& q) {
  const auto sizes = BlockScaled::sizes(q.scheme, q.shape, q.scale_layout);
  part[0] = {argument, ".codes", q.codes, static_cast<std::size_t>(sizes.codes)};
  part[1] = {argument, ".scales", q.scales, static_cast<std::size_t>(sizes.scales)};
  part[2] = {argument, ".tensor_scale", q.tensor_scale,
             static_cast<std::size_t>(sizes.tensor_scale)};
}

void check_apart(const char* function, const Occupied& out, const Occupied& other) {
  check(!overlap(out.region, other.region), function, ": ", out.argument, out.part, " overlaps ",
        other.argument, other.part,
        "; expected memory of its own; write to another buffer and copy it");
}

void check_apart(const char* function, std::span<const Occupied> outs, const Occupied& input) {
  for (std::size_t i = 0; i < outs.size(); ++i) {
    check_apart(function, outs[i], input);
    for (std::size_t j = 0; j < i; ++j) check_apart(function, outs[i], outs[j]);
  }
}

void check_apart_or_same(const char* function, const Buffer& out, const Buffer& x) {
  const bool in_place =
      out.data == x.data && out.row_stride == x.row_stride && out.batch_stride == x.batch_stride;
  if (!in_place) check_apart(function, {"out", out}, {"x", x});
}

}  // namespace mxkern
