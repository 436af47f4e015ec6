// cuda/quantize/hadamard.cu: launches of the Hadamard kernel.
#include "cuda/backend.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/row_grids.h"
#include "mxkern/kernels/quantize/hadamard.cuh"

namespace mxkern::cuda {

void random_hadamard(const Buffer& x, const Buffer& out, const Hadamard& hadamard, bool inverse,
                     Stream stream) {
  constexpr const char* function = "random_hadamard";
  const DeviceScope scope(x.device, stream, function);
  check_device_pointer(function, "x", x.data, x.device);
  check_device_pointer(function, "out", out.data, out.device);
  kernels::HadamardParameters p = {};
  p.x = x.data;
  p.out = out.data;
  p.grid = row_grid(x.shape.batch, x.shape.rows, x.shape.columns / 8);
  p.columns = x.shape.columns;
  p.x_batch_stride = x.batch_stride;
  p.x_row_stride = x.row_stride;
  p.out_batch_stride = out.batch_stride;
  p.out_row_stride = out.row_stride;
  p.size = hadamard.size;
  p.signs = hadamard.signs;
  p.inverse = inverse;
  p.vectors = starts_on_16(x) && starts_on_16(out);
  visit(x.dtype, [&]<class T>(TypeTag<T>) {
    launch<Start::early>(function, kernels::hadamard_kernel<T>, grid_of(p.grid),
                         kernels::row_threads, 0, stream, p);
  });
}

}  // namespace mxkern::cuda
