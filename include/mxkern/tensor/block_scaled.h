// mxkern/tensor/block_scaled.h: a quantized tensor: codes, scales, tensor scale, and what they
// mean.
#pragma once

#include <cstdint>

#include "mxkern/core/buffer.h"
#include "mxkern/core/error.h"
#include "mxkern/numerics/visit.h"
#include "mxkern/tensor/packing.h"
#include "mxkern/tensor/scale_layout.h"

namespace mxkern {

// A view; somebody else owns the memory. Blocks run along the columns (the last axis) of the
// logical shape. Codes are dense: `code_row_bytes` a row. Scales lie as `scale_layout` says, one
// matrix after the other. `tensor_scale` is NVFP4's float32 decode multiplier, null elsewhere.
struct BlockScaled {
  Scheme scheme = Scheme::mxfp8_e4m3;
  Shape shape;
  ScaleLayout scale_layout = ScaleLayout::row_major;
  std::uint8_t* codes = nullptr;
  std::uint8_t* scales = nullptr;
  float* tensor_scale = nullptr;
  Device device = {};
  bool is_read_only = false;  // then it is refused as an output

  // How many bytes each part takes. Throws InvalidArgument for what no operation takes: shapes that
  // memory could not hold, and numbers that are no scheme or layout.
  struct Sizes {
    std::int64_t codes;
    std::int64_t scales;
    std::int64_t tensor_scale;
  };

  static constexpr Sizes sizes(Scheme scheme, const Shape& shape, ScaleLayout layout) {
    if (!shape.is_countable()) {
      const bool is_negative = shape.batch < 0 || shape.rows < 0 || shape.columns < 0;
      refuse("shape is [", shape.batch, ", ", shape.rows, ", ", shape.columns, "]; expected ",
             is_negative ? "no negative extent"
                         : "fewer than 2^60 elements, with rows and columns padded to 128 and 0 "
                           "counted as 1");
    }
    if (!is_listed(scheme, all_schemes)) {
      refuse("scheme is number ", static_cast<int>(scheme), "; expected one of all_schemes");
    }
    if (!is_listed(layout, all_scale_layouts)) {
      refuse("layout is number ", static_cast<int>(layout), "; expected row_major or swizzled");
    }
    const SchemeFacts facts = facts_of(scheme);
    const ScaleIndex index{shape.rows, ceil_div(shape.columns, facts.block), layout};
    return {shape.batch * shape.rows * code_row_bytes(scheme, shape.columns),
            shape.batch * index.size(), facts.has_tensor_scale ? std::int64_t{sizeof(float)} : 0};
  }

  // The view of parts that are only read.
  static BlockScaled of(Scheme scheme, const Shape& shape, ScaleLayout layout,
                        const std::uint8_t* codes, const std::uint8_t* scales,
                        const float* tensor_scale = nullptr, Device device = {}) {
    return {scheme,
            shape,
            layout,
            const_cast<std::uint8_t*>(codes),
            const_cast<std::uint8_t*>(scales),
            const_cast<float*>(tensor_scale),
            device,
            true};
  }

  // The scales of one matrix of the batch.
  constexpr ScaleIndex scale_index() const {
    return {shape.rows, ceil_div(shape.columns, facts_of(scheme).block), scale_layout};
  }

 private:
  template <class... Parts>
  [[noreturn]] static void refuse(const Parts&... parts) {
    throw InvalidArgument(concatenate("BlockScaled::sizes: ", parts...));
  }
};

}  // namespace mxkern
