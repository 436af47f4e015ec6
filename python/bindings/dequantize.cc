// bindings/dequantize.cc: codes and scales back to a plain tensor.
#include "bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mxkern::bindings {

void bind_dequantize(nb::module_& module) {
  module.def(
      "dequantize",
      [](const BlockScaled& q, const Buffer& out, Address stream) {
        call(q.shape.size(), [&] { dequantize(q, out, Stream{stream.value}); });
      },
      "q"_a, "out"_a, "stream"_a.none());
}

}  // namespace mxkern::bindings
