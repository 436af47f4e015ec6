// ops/swiglu.cc: checks the arguments of swiglu and picks the device.
#include "mxkern/swiglu.h"

#include "check/arguments.h"
#include "check/experts.h"
#include "cpu/experts/swiglu.h"
#include "cuda/experts/swiglu.h"

namespace mxkern {

void swiglu(const Buffer& given_x, const Buffer& given_out, const SwigluOptions& options,
            Stream stream) {
  constexpr const char* function = "swiglu";
  check_buffer(function, "x", given_x);
  check_buffer(function, "out", given_out);
  const Buffer x = with_strides(given_x), out = with_strides(given_out);
  check_swiglu(function, options);
  check(x.shape.columns % 2 == 0, function, ": x has ", x.shape.columns,
        " columns; expected an even number, as half of them are gates");
  check_output(function, "out", out);
  check_same_shape(function, "out", out.shape, {x.shape.batch, x.shape.rows, x.shape.columns / 2});
  check_same_device(function, "out", out.device, x.device);
  check<InvalidType>(out.dtype == x.dtype, function, ": out has dtype ", name_of(out.dtype),
                     "; expected that of x, ", name_of(x.dtype));
  check_device(function, x.device);
  check_apart(function, {"out", out}, {"x", x});
  if constexpr (has_cuda) {
    if (x.device.type == DeviceType::cuda) return cuda::swiglu(function, x, out, options, stream);
  }
  cpu::swiglu(x, out, options);
}

}  // namespace mxkern
