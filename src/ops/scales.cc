// ops/scales.cc: checks the arguments of the scale layout conversions and picks the device.
#include "mxkern/scales.h"

#include "check/arguments.h"
#include "cpu/backend.h"
#include "cuda/backend.h"

namespace mxkern {
namespace {

struct Scales {
  const char* argument;
  const std::uint8_t* bytes;
  ScaleLayout layout;
};

Occupied check_scales(const char* function, const Scales& scales, const Shape& shape) {
  const ScaleIndex index{shape.rows, shape.columns, scales.layout};
  const std::int64_t size = shape.batch * index.size();
  check(scales.bytes != nullptr || size == 0, function, ": ", scales.argument,
        " is null; expected memory for ", size, " bytes");
  return {scales.argument, "", scales.bytes, static_cast<std::size_t>(size)};
}

void convert(const char* function, const Scales& from, const Scales& to, std::uint8_t* target,
             const Shape& shape, Device device, Stream stream) {
  check_shape(function, "scales", shape);
  const Occupied read = check_scales(function, from, shape);
  check_apart(function, check_scales(function, to, shape), read);
  check_device(function, device);
  if constexpr (has_cuda) {
    if (device.type == DeviceType::cuda) {
      return cuda::convert_scales(from.bytes, from.layout, target, to.layout, shape.batch,
                                  shape.rows, shape.columns, device, stream);
    }
  }
  cpu::convert_scales(from.bytes, from.layout, target, to.layout, shape.batch, shape.rows,
                      shape.columns);
}

}  // namespace

void swizzle_scales(const std::uint8_t* row_major, std::uint8_t* swizzled, std::int64_t batch,
                    std::int64_t rows, std::int64_t blocks, Device device, Stream stream) {
  convert("swizzle_scales", {"row_major", row_major, ScaleLayout::row_major},
          {"swizzled", swizzled, ScaleLayout::swizzled}, swizzled, {batch, rows, blocks}, device,
          stream);
}

void unswizzle_scales(const std::uint8_t* swizzled, std::uint8_t* row_major, std::int64_t batch,
                      std::int64_t rows, std::int64_t blocks, Device device, Stream stream) {
  convert("unswizzle_scales", {"swizzled", swizzled, ScaleLayout::swizzled},
          {"row_major", row_major, ScaleLayout::row_major}, row_major, {batch, rows, blocks},
          device, stream);
}

}  // namespace mxkern
