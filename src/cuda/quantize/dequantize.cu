// cuda/quantize/dequantize.cu: launches of the dequantizing kernel.
#include "cuda/backend.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/row_grids.h"
#include "mxkern/kernels/dequantize/dequantize.cuh"

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
  p.grid = row_grid(q.shape.batch, q.shape.rows, ceil_div(q.shape.columns, 8));
  p.vector_loads = rows_start_on(p.codes, p.code_row_bytes, bits == 6 ? 4 : bits);
  p.vector_stores = starts_on_16(out);
  p.fetching_blocks = 4 * processor_count(function);
  const dim3 grid = grid_of(p.grid);
  constexpr std::int64_t most = 0x7FFFFFFF;
  const bool has_octets = p.vector_loads && p.vector_stores && q.shape.columns % 8 == 0;
  const bool are_cut = q.shape.rows % ScaleIndex::tile_rows != 0 ||
                       q.shape.columns % (std::int64_t{8} << p.grid.log2_across) != 0;
  const bool are_tiles = has_octets && grid.y == p.grid.series() && grid.z == q.shape.batch &&
                         q.shape.rows <= most && q.shape.columns * 8 <= most && p.row_stride >= 0 &&
                         p.row_stride <= most;
  const std::int64_t octets = q.shape.size() / 8;
  const bool is_small = has_octets && octets < (1 << 16);
  visit(q.scheme, [&](auto scheme) {
    visit(out.dtype, [&]<class T>(TypeTag<T>) {
      if (is_small) {
        constexpr int threads = kernels::small_dequantize_threads;
        launch<Start::early>(function, kernels::dequantize_small_kernel<decltype(scheme), T>,
                             grid_of(ceil_div(octets, threads)), threads, 0, stream, p);
        return;
      }
      if (are_tiles) {
        using S = decltype(scheme);
        return launch<Start::early>(function,
                                    are_cut ? kernels::dequantize_whole_kernel<S, T, true>
                                            : kernels::dequantize_whole_kernel<S, T, false>,
                                    grid, kernels::row_threads, 0, stream, p,
                                    kernels::WholeTiles::of(p));
      }
      launch<Start::early>(function, kernels::dequantize_kernel<decltype(scheme), T>, grid,
                           kernels::row_threads, 0, stream, p);
    });
  });
}

}  // namespace mxkern::cuda
