// cuda/experts/swiglu.cu: launches of the SwiGLU kernel.
#include "cuda/experts/swiglu.h"

#include "cuda/runtime/device_scope.h"
#include "cuda/runtime/launch.h"
#include "mxkern/kernels/experts/swiglu.cuh"

namespace mxkern::cuda {

void swiglu(const char* function, const Buffer& x, const Buffer& out, const SwigluOptions& options,
            Stream stream) {
  const DeviceScope scope(x.device, stream, function);
  check_device_pointer(function, "x", x.data, x.device);
  check_device_pointer(function, "out", out.data, out.device);
  if (out.shape.size() == 0) return;
  kernels::SwigluParameters p = {};
  p.x = x.data;
  p.out = out.data;
  p.batch = out.shape.batch;
  p.rows = out.shape.rows;
  p.columns = out.shape.columns;
  p.x_batch_stride = x.batch_stride;
  p.x_row_stride = x.row_stride;
  p.out_batch_stride = out.batch_stride;
  p.out_row_stride = out.row_stride;
  p.alpha = options.alpha;
  p.limit = options.limit;
  p.offset = options.offset;
  p.vectors = starts_on_16(x) && starts_on_16(out);
  p.vectors_behind = p.vectors && p.columns * static_cast<std::int64_t>(size_of(x.dtype)) % 16 == 0;
  const dim3 grid =
      grid_of(ceil_div(p.columns, std::int64_t{8} * kernels::swiglu_threads), p.rows, p.batch);
  visit(x.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    launch<Start::early>(function,
                         options.layout == GateLayout::interleaved
                             ? kernels::swiglu_kernel<T, true>
                             : kernels::swiglu_kernel<T, false>,
                         grid, kernels::swiglu_threads, 0, stream, p);
  });
}

}  // namespace mxkern::cuda
