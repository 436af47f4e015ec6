// cuda/quantize/fake_quantize.cu: which kernel rounds a tensor to a scheme and back, with which
// parameters.
#include "check/quantize.h"
#include "cuda/backend.h"
#include "cuda/quantize/fake_quantize_launch.h"
#include "cuda/quantize/scalars.h"
#include "cuda/runtime/row_grids.h"
#include "cuda/quantize/tensor_amax.h"
#include "mxkern/core/error.h"

namespace mxkern::cuda {

void fake_quantize(const Buffer& x, Scheme scheme, const Buffer& out,
                   const QuantizeOptions& options, Stream stream) {
  constexpr const char* function = "fake_quantize";
  const DeviceScope scope(x.device, stream, function);
  check_device_pointer(function, "x", x.data, x.device);
  check_device_pointer(function, "out", out.data, out.device);
  check_scalar_pointers(function, options, x.device);
  check<Unsupported>(options.block_shape == BlockShape::row || !options.four_over_six, function,
                     ": square blocks with four_over_six on a CUDA device; call quantize and "
                     "dequantize, or leave one of the options");
  const bool finds = finds_amax(scheme, options);
  if (finds) {
    check_found_amax(function, options);
    tensor_amax(function, x, options.found_amax, {}, false, stream);
  }
  if (x.shape.size() == 0) return;
  const SchemeFacts facts = facts_of(scheme);
  kernels::FakeQuantizeParameters p = {};
  p.grid = row_grid(x.shape.batch, x.shape.rows, round_up(x.shape.columns, facts.block) / 8);
  p.x = x.data;
  p.out = out.data;
  p.columns = x.shape.columns;
  p.x_batch_stride = x.batch_stride;
  p.x_row_stride = x.row_stride;
  p.out_batch_stride = out.batch_stride;
  p.out_row_stride = out.row_stride;
  p.options = octet_options(scheme, options);
  p.vectors = starts_on_16(x) && starts_on_16(out);
  visit(scheme, [&](auto tag) {
    launch_fake_quantize<decltype(tag)>(function, x.dtype, options, p, stream);
  });
}

}  // namespace mxkern::cuda
