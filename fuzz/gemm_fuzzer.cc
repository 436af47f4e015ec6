// fuzz/gemm_fuzzer.cc: products of any codes and scales, and of any plain left operand.
#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>

#include "fuzz/arbitrary.h"

namespace {

using namespace mxkern;

// Exactly as many bytes as gemm asked for, aligned as it asks.
struct AlignedMemory {
  Workspace workspace;

  explicit AlignedMemory(std::size_t bytes)
      : workspace{::operator new (bytes, std::align_val_t{64}), bytes} {}
  AlignedMemory(const AlignedMemory&) = delete;
  ~AlignedMemory() { ::operator delete (workspace.data, std::align_val_t{64}); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::int64_t batch = input.below(3), m = input.below(70), n = input.below(70),
                     k = input.below(140);
  const Shape a_shape{batch, m, k}, b_shape{input.byte() % 2 ? batch : 1, n, k};

  fuzz::ArbitraryBlockScaled quantized(input, a_shape);
  fuzz::ArbitraryBuffer plain(input, a_shape);
  const GemmOperand a =
      input.byte() % 4 == 0 ? GemmOperand{plain.view} : GemmOperand{quantized.view};
  fuzz::ArbitraryBlockScaled b(input, b_shape);
  fuzz::ArbitraryBuffer out(input, {batch, m, n});
  fuzz::ArbitraryBuffer bias(input, {1, 1, n});

  GemmOptions options;
  options.alpha = input.values<float>(1)[0];
  options.beta = input.byte() % 2 ? input.values<float>(1)[0] : 0.0f;
  if (input.byte() % 2) options.bias = &bias.view;
  const AlignedMemory memory(gemm_workspace_bytes(a, b.view, out.view));
  try {
    gemm(a, b.view, out.view, options, memory.workspace);
  } catch (const InvalidArgument&) {
    // An argument may be refused; it may not do harm.
  }
  return 0;
}
