// cuda/any/values.cu: launches of the kernels that decode, round and multiply with schemes and
// formats known at run time.
#include <algorithm>

#include "cuda/any/backend.h"
#include "cuda/any/launch.h"
#include "cuda/any/narrow.h"
#include "mxkern/kernels/any/multiply.cuh"
#include "mxkern/kernels/any/values.cuh"

namespace mxkern::cuda {
namespace {

dim3 grid_for(std::int64_t threads) {
  return grid_of(std::clamp<std::int64_t>(ceil_div(threads, kernels::any_threads), 1, 1 << 20));
}

}  // namespace

void clear(void* data, std::size_t bytes, Device device, Stream stream) {
  constexpr const char* function = "gemm";
  const DeviceScope scope(device, stream, function);
  check_cuda(cudaMemsetAsync(data, 0, bytes, handle_of(stream)), function, "clear rows");
}

void dequantize_any(const AnyBlockScaled& q, const AnyBuffer& out, Stream stream) {
  constexpr const char* function = "dequantize";
  const DeviceScope scope(q.device, stream, function);
  check_device_pointer(function, "q.codes", q.codes, q.device);
  check_device_pointer(function, "q.scales", q.scales, q.device);
  check_device_pointer(function, "out", out.data, out.device);
  if (q.shape.size() == 0) return;
  visit_any(out, [&]<class T>(TypeTag<T>) {
    using Word = kernels::AnyWordOf<T>;
    kernels::AnyDecodeParameters<Word> p = {};
    p.codes = static_cast<const std::uint8_t*>(q.codes);
    p.scales = q.scales;
    p.tensor_scale = q.tensor_scale;
    p.out = view_of(out);
    p.shape = q.shape;
    p.scheme = q.scheme;
    p.layout = q.scale_layout;
    p.decoder = AnyDecoder<Word>::of(q.scheme.element);
    p.block = q.scheme.block_columns == 0 ? q.shape.columns : q.scheme.block_columns;
    if constexpr (std::is_same_v<Word, std::uint32_t>) {
      if (dequantize_narrow(function, out, p, stream)) return;
    }
    launch(function, kernels::any_decode_kernel<T>,
           grid_for(q.shape.batch * q.shape.rows * ceil_div(q.shape.columns, 8)),
           kernels::any_threads, 0, stream, p);
  });
}

void round_any(const AnyBuffer& x, const AnyFormat& format, const AnyBuffer& out,
               const AnyOptions& options, Stream stream) {
  constexpr const char* function = "round_to";
  const DeviceScope scope(x.device, stream, function);
  check_device_pointer(function, "x", x.data, x.device);
  check_device_pointer(function, "out", out.data, out.device);
  if (x.shape.size() == 0) return;
  visit_any(x, [&]<class T>(TypeTag<T>) {
    using Word = kernels::AnyWordOf<T>;
    kernels::AnyRoundParameters<Word> p = {};
    p.x = view_of(x);
    p.out = view_of(out);
    p.shape = x.shape;
    p.way = AnyWay<Word>::of(format, options.rounding);
    p.decoder = AnyDecoder<Word>::of(format);
    p.is_stochastic = options.rounding.rounding == AnyRounding::stochastic;
    p.seed = options.seed;
    p.offset = options.offset;
    launch(function, kernels::any_round_kernel<T>, grid_for(x.shape.size()), kernels::any_threads,
           0, stream, p);
  });
}

void multiply_float32(const Buffer& a, const Buffer& b, const Buffer& out,
                      const AnyProductOptions& options, Stream stream) {
  constexpr const char* function = "gemm";
  const DeviceScope scope(a.device, stream, function);
  check_device_pointer(function, "a", a.data, a.device);
  check_device_pointer(function, "b", b.data, b.device);
  check_device_pointer(function, "out", out.data, out.device);
  if (out.shape.size() == 0) return;
  kernels::AnyMultiplyParameters p = {};
  p.a = view_of(a);
  p.b = view_of(b);
  p.out = view_of(out);
  p.m = a.shape.rows;
  p.n = b.shape.rows;
  p.k = a.shape.columns;
  p.alpha = options.alpha;
  p.beta = options.beta;
  if (options.bias != nullptr) {
    p.bias = view_of(*options.bias);
    p.bias_dtype = options.bias->dtype;
  }
  p.scale_block = options.scale_block != 0 ? options.scale_block : std::max<std::int64_t>(p.k, 1);
  p.a_scales = options.a_scales;
  p.b_scales = options.b_scales;
  p.a_scale_rows = options.a_scale_rows;
  p.b_scale_rows = options.b_scale_rows;
  p.one_b = b.shape.batch == 1;
  const dim3 grid(static_cast<unsigned>(ceil_div(p.n, kernels::any_tile)),
                  static_cast<unsigned>(ceil_div(p.m, kernels::any_tile)),
                  static_cast<unsigned>(a.shape.batch));
  check(grid.y <= 65535 && grid.z <= 65535, function, ": a has ", p.m, " rows in ", a.shape.batch,
        " matrices; expected fewer than 4194240 and "
        "65536 for operands by schemes of your own");
  visit(out.dtype, [&]<class T>(TypeTag<T>) {
    launch(function, kernels::any_multiply_kernel<T>, grid, 256, 0, stream, p);
  });
}

}  // namespace mxkern::cuda
