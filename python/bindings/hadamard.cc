// bindings/hadamard.cc: the random Hadamard transform.
#include "bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mxkern::bindings {

void bind_hadamard(nb::module_& module) {
  module.def(
      "random_hadamard",
      [](const Buffer& x, const Buffer& out, int size, std::uint64_t sign_mask_low,
         std::uint64_t sign_mask_high, bool inverse, Address stream) {
        const Hadamard hadamard{size, {sign_mask_low, sign_mask_high}};
        call(x.shape.size(),
             [&] { random_hadamard(x, out, hadamard, inverse, Stream{stream.value}); });
      },
      "x"_a, "out"_a, "size"_a, "sign_mask_low"_a, "sign_mask_high"_a, "inverse"_a,
      "stream"_a.none());

  module.def(
      "default_sign_mask",
      [] { return nb::make_tuple(default_sign_mask.low, default_sign_mask.high); },
      nb::sig("def default_sign_mask() -> tuple[int, int]"));
}

}  // namespace mxkern::bindings
