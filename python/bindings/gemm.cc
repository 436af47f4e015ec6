// bindings/gemm.cc: the block-scaled matrix product, and the memory that it works in.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/variant.h>

#include <cstdlib>
#include <memory>
#include <new>
#include <optional>

#include "bindings.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mxkern::bindings {
namespace {

constexpr std::size_t workspace_alignment = 64;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

std::unique_ptr<void, Free> allocate(std::size_t bytes) {
  const std::size_t whole = (bytes + workspace_alignment - 1) / workspace_alignment;
  void* memory = std::aligned_alloc(workspace_alignment, whole * workspace_alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return std::unique_ptr<void, Free>(memory);
}

}  // namespace

void bind_gemm(nb::module_& module) {
  module.def(
      "gemm",
      [](const GemmOperand& a, const BlockScaled& b, const Buffer& out, float alpha, float beta,
         const std::optional<Buffer>& bias, Address stream) {
        const GemmOptions options{alpha, beta, bias ? &*bias : nullptr};
        const std::int64_t work = out.shape.size() * b.shape.columns;
        call(work, [&] {
          const std::size_t bytes = gemm_workspace_bytes(a, b, out);
          const auto memory = bytes == 0 ? nullptr : allocate(bytes);
          gemm(a, b, out, options, Workspace{memory.get(), bytes}, Stream{stream.value});
        });
      },
      "a"_a, "b"_a, "out"_a, "alpha"_a, "beta"_a, "bias"_a.none(), "stream"_a.none());
}

}  // namespace mxkern::bindings
