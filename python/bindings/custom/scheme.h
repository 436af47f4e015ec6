// bindings/custom/scheme.h: a scheme of the user's own, with the types of its arrays.
#pragma once

#include "readers/array.h"
#include "mxkern/custom.h"

namespace mxkern::bindings {

// A scheme with its name, and the types of its arrays.
struct CustomScheme {
  AnyScheme scheme;
  nanobind::object name;
  Element codes = Element::uint8;
  Element scales = Element::uint8;

  Extents code_extents(Extents extents) const {
    const int bits = scheme.element.stored_bits();
    const std::int64_t bytes = scheme.code_row_bytes(extents.last());
    extents.last() = bits == 16 ? bytes / 2 : bytes;
    return extents;
  }
  Extents scale_extents(Extents extents, ScaleLayout layout) const {
    if (scheme.is_whole_tensor()) {
      for (int i = 0; i < extents.dimensions; ++i) extents.items[i] = 1;
      return extents;
    }
    const ScaleIndex index = scheme.scale_index(extents.shape(), layout);
    if (layout == ScaleLayout::row_major && extents.dimensions > 1) {
      extents.items[extents.dimensions - 2] = index.rows;
    }
    return bindings::scale_extents(index, extents);
  }
  Extents tensor_scale_extents(Extents extents) const {
    if (scheme.tensor_scales == TensorScales::row) {
      extents.last() = 1;
      return extents;
    }
    return {};
  }
};

}  // namespace mxkern::bindings
