// ops/hadamard.cc: checks the arguments of random_hadamard and picks the device.
#include "mxkern/hadamard.h"

#include <algorithm>

#include "check/arguments.h"
#include "cpu/backend.h"
#include "cuda/backend.h"

namespace mxkern {

void random_hadamard(const Buffer& given_x, const Buffer& given_out, const Hadamard& hadamard,
                     bool inverse, Stream stream) {
  constexpr const char* function = "random_hadamard";
  check_buffer(function, "x", given_x);
  check_buffer(function, "out", given_out);
  const Buffer x = with_strides(given_x), out = with_strides(given_out);
  check_output_like(function, out, x);
  const int size = hadamard.size;
  check(std::count(std::begin(hadamard_sizes), std::end(hadamard_sizes), size) == 1, function,
        ": size is ", size, "; expected 16, 32, 64 or 128");
  check(x.shape.columns % size == 0, function, ": x has ", x.shape.columns,
        " columns; expected a multiple of the size ", size);
  check_device(function, x.device);
  check_apart_or_same(function, out, x);
  if constexpr (has_cuda) {
    if (x.device.type == DeviceType::cuda) {
      return cuda::random_hadamard(x, out, hadamard, inverse, stream);
    }
  }
  cpu::random_hadamard(x, out, hadamard, inverse);
}

}  // namespace mxkern
