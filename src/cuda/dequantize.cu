// cuda/dequantize.cu: launches of the dequantizing kernel.
#include "cuda/backend.h"
#include "cuda/launch.h"
#include "mxkern/kernels/dequantize.cuh"

namespace mxkern::cuda {

void dequantize(const BlockScaled& q, const Buffer& out, Stream stream) {
  constexpr const char* function = "dequantize";
  const DeviceScope scope(q.device, stream, function);
  check_device_pointer(function, "q.codes", q.codes, q.device);
  check_device_pointer(function, "q.scales", q.scales, q.device);
  check_device_pointer(function, "q.tensor_scale", q.tensor_scale, q.device);
  check_device_pointer(function, "out", out.data, out.device);
  kernels::DequantizeParameters p = {};
  p.codes = q.codes;
  p.code_row_bytes = code_row_bytes(q.scheme, q.shape.columns);
  p.scales = q.scales;
  p.scale_index = q.scale_index();
  p.tensor_scale = q.tensor_scale;
  p.out = out.data;
  p.columns = q.shape.columns;
  p.batch_stride = out.batch_stride;
  p.row_stride = out.row_stride;
  const SchemeFacts facts = facts_of(q.scheme);
  const int bits = facts.bits;
  // Series that measured fastest on an H200.
  const bool many = q.shape.size() >= std::int64_t{1} << 26;
  const int log2_depth = many && (bits == 6 || facts.has_tensor_scale) ? 1 : 0;
  p.grid = row_grid(q.shape.batch, q.shape.rows, ceil_div(q.shape.columns, 8), log2_depth);
  p.vector_loads = is_aligned(p.codes, p.code_row_bytes, bits == 6 ? 2 : bits);
  p.vector_stores = rows_are_aligned(out);
  p.fetching_blocks = facts.has_tensor_scale ? 0 : 5 * processor_count(function);
  const std::int64_t octets = q.shape.size() / 8;
  const bool is_small =
      p.vector_loads && p.vector_stores && p.columns % 8 == 0 && octets < (1 << 16);
  visit(q.scheme, [&](auto scheme) {
    visit(out.dtype, [&](auto type) {
      using T = typename decltype(type)::type;
      if (is_small) {
        constexpr int threads = kernels::small_dequantize_threads;
        launch<Start::early>(function, kernels::dequantize_small_kernel<decltype(scheme), T>,
                             grid_of(ceil_div(octets, threads)), threads, 0, stream, p);
        return;
      }
      launch<Start::early>(function, kernels::dequantize_kernel<decltype(scheme), T>,
                           grid_of(p.grid), kernels::row_threads, 0, stream, p);
    });
  });
}

}  // namespace mxkern::cuda
