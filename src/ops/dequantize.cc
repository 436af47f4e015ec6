// ops/dequantize.cc: checks the arguments of dequantize and picks the device.
#include "mxkern/dequantize.h"

#include "check/arguments.h"
#include "cpu/backend.h"
#include "cuda/backend.h"

namespace mxkern {

void dequantize(const BlockScaled& q, const Buffer& given, Stream stream) {
  constexpr const char* function = "dequantize";
  check_block_scaled(function, "q", q);
  check_buffer(function, "out", given);
  const Buffer out = with_strides(given);
  check_output(function, "out", out);
  check_same_shape(function, "out", out.shape, q.shape);
  check_same_device(function, "out", out.device, q.device);
  check_device(function, q.device);
  for (const Occupied& part : OccupiedParts("q", q).part) check_apart(function, {"out", out}, part);
  if constexpr (has_cuda) {
    if (q.device.type == DeviceType::cuda) return cuda::dequantize(q, out, stream);
  }
  cpu::dequantize(q, out);
}

}  // namespace mxkern
