// bindings/scales.cc: scales from one layout to the other.
#include "bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mxkern::bindings {

void bind_scales(nb::module_& module) {
  using Move = void(const std::uint8_t*, std::uint8_t*, std::int64_t, std::int64_t, std::int64_t,
                    Device, Stream);
  const auto define = [&module](const char* name, Move* operation) {
    module.def(
        name,
        [operation](Address from, Address to, std::int64_t batch, std::int64_t rows,
                    std::int64_t blocks, int device, Address stream) {
          call(batch * rows * blocks, [&] {
            operation(static_cast<const std::uint8_t*>(from.value),
                      static_cast<std::uint8_t*>(to.value), batch, rows, blocks,
                      numbered_device(device), Stream{stream.value});
          });
        },
        "scales"_a, "out"_a, "batch"_a, "rows"_a, "blocks"_a, "device"_a, "stream"_a.none());
  };
  define("swizzle_scales", &swizzle_scales);
  define("unswizzle_scales", &unswizzle_scales);
}

}  // namespace mxkern::bindings
