// ops/fake_quantize.cc: checks the arguments of fake_quantize and picks the device.
#include "mxkern/fake_quantize.h"

#include "check/arguments.h"
#include "check/quantize.h"
#include "cpu/backend.h"
#include "cuda/backend.h"

namespace mxkern {
namespace {

// The scalars that are given, and the one that is found, lie where nothing else is written.
void check_scalars(const char* function, const Buffer& x, const Buffer& out,
                   const QuantizeOptions& options, bool finds) {
  const Occupied found("found_amax", "", options.found_amax, sizeof(float)), written("out", out);
  finds = finds && options.found_amax != nullptr;
  visit_scalars(options, [&](const Occupied& scalar) {
    check_apart(function, written, scalar);
    if (finds) check_apart(function, found, scalar);
  });
  if (!finds) return;
  check_apart(function, found, {"x", x});
  check_apart(function, found, written);
}

}  // namespace

void fake_quantize(const Buffer& given_x, Scheme scheme, const Buffer& given_out,
                   const QuantizeOptions& options, Stream stream) {
  constexpr const char* function = "fake_quantize";
  check_buffer(function, "x", given_x);
  check_buffer(function, "out", given_out);
  check(is_listed(scheme, all_schemes), function, ": scheme number ", static_cast<int>(scheme),
        "; expected one of the schemes");
  const Buffer x = with_strides(given_x), out = with_strides(given_out);
  check_output_like(function, out, x);
  check_quantize_options(function, scheme, x.device, options, x.shape);
  check(options.hadamard.size == 0, function, ": a Hadamard transform of size ",
        options.hadamard.size, "; expected 0, none; call random_hadamard before");
  check_device(function, x.device);
  check_apart_or_same(function, out, x);
  check_scalars(function, x, out, options, finds_amax(scheme, options));
  if constexpr (has_cuda) {
    if (x.device.type == DeviceType::cuda)
      return cuda::fake_quantize(x, scheme, out, options, stream);
  }
  cpu::fake_quantize(x, scheme, out, with_offset(options));
}

}  // namespace mxkern
