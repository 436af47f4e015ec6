// bindings/gemm.cc: the block-scaled matrix product.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/variant.h>

#include <optional>

#include "bindings.h"
#include "gemm_workspace.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mxkern::bindings {

void bind_gemm(nb::module_& module) {
  module.def(
      "gemm",
      [](const GemmOperand& a, const BlockScaled& b, const Buffer& out, float alpha, float beta,
         const std::optional<Buffer>& bias, Address stream) {
        const GemmOptions options{alpha, beta, bias ? &*bias : nullptr};
        gemm_with_workspace(a, b, out, options, Stream{stream.value});
      },
      "a"_a, "b"_a, "out"_a, "alpha"_a, "beta"_a, "bias"_a.none(), "stream"_a.none());
}

}  // namespace mxkern::bindings
