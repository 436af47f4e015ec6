// cuda/quantize/tensor_amax.cu: launches of the amax kernels.
#include "cuda/quantize/tensor_amax.h"

#include "cuda/backend.h"
#include "cuda/runtime/launch.h"
#include "mxkern/core/error.h"
#include "mxkern/kernels/quantize/tensor_amax.cuh"
#include "mxkern/kernels/quantize/transformed_amax.cuh"
#include "tuning/h200.h"

namespace mxkern::cuda {
namespace {

__global__ void store_tensor_scale_kernel(float* to, kernels::OctetOptions options) {
  *to = kernels::read_tensor_scale(options).stored;
}

// Enough thread blocks to fill the device several times over; each merges one value.
constexpr int blocks_per_processor = 16;

// As many as are resident, where a quantizer follows: in one sweep, which ends where that begins.
int resident_blocks(DType dtype) {
  return dtype == DType::float32 ? kernels::amax_blocks<float> : kernels::amax_blocks<bfloat16>;
}

// Up to this many chunks thread blocks start before x is complete, and ask for it.
constexpr std::int64_t few_chunks = tuning::h200::quantize::few_amax_chunks;

void clear(const char* function, float* amax, bool early, Stream stream, float* other = nullptr) {
  launch<Start::early>(function, kernels::clear_amax_kernel, dim3(1), 1, 0, stream, amax, other,
                       early);
}

void amax_of_rows(const char* function, const Buffer& x, float* amax, const Hadamard& hadamard,
                  int blocks, Stream stream) {
  kernels::TensorAmaxParameters p = {};
  const bool dense = is_dense(x);
  p.x = x.data;
  p.batch = dense ? 1 : x.shape.batch;
  p.lines = dense ? 1 : x.shape.rows;
  p.length = dense ? x.shape.size() : x.shape.columns;
  p.batch_stride = x.batch_stride;
  p.line_stride = x.row_stride;
  p.amax = amax;
  p.hadamard_size = hadamard.size;
  p.hadamard_signs = hadamard.signs;
  p.vector_loads = dense ? starts_on(x.data, 16) : starts_on_16(x);
  const std::int64_t filling = processor_count(function) * std::int64_t{blocks};
  const std::int64_t chunks = ceil_div(ceil_div(p.length, 8), kernels::amax_chunk);
  const std::int64_t across = std::min(chunks, filling);
  const std::int64_t down = std::min(p.lines, ceil_div(filling, across));
  const dim3 grid = grid_of(across, down, std::min(p.batch, ceil_div(filling, across * down)));
  const bool one_cluster = dense && chunks <= kernels::amax_cluster && can_start_early(function);
  p.fetches = one_cluster || chunks * p.lines * p.batch <= few_chunks;
  if (!one_cluster) clear(function, amax, p.fetches, stream);
  visit(x.dtype, [&]<class T>(TypeTag<T>) {
    if (one_cluster) {
      launch_clusters(function, kernels::tensor_amax_kernel<T, true>, kernels::amax_cluster,
                      grid_of(kernels::amax_cluster), kernels::amax_threads, 0, stream, p);
    } else {
      launch<Start::early>(function, kernels::tensor_amax_kernel<T, false>, grid,
                           kernels::amax_threads, 0, stream, p);
    }
  });
}

// Whether transformed_amax_kernel, which reads x once for both, is for a transform along columns.
bool is_in_one_read(const Buffer& x, const Hadamard& hadamard) {
  return x.dtype != DType::float32 && hadamard.size == kernels::TransformedAmaxParameters::rows &&
         starts_on_16(x) && x.shape.columns % kernels::TransformedAmaxParameters::quad == 0;
}

// The amax of x, unless null, and of its transform.
void amax_in_one_read(const char* function, const Buffer& x, float* plain, float* transformed,
                      const Hadamard& hadamard, Stream stream) {
  kernels::TransformedAmaxParameters p = {};
  p.x = x.data;
  p.batch = x.shape.batch;
  p.groups = x.shape.rows / p.rows;
  p.quads = x.shape.columns / p.quad;
  p.batch_stride = x.batch_stride;
  p.row_stride = x.row_stride;
  while (p.log2_across < 8 && p.quads > std::int64_t{1} << p.log2_across) ++p.log2_across;
  p.signs = hadamard.signs;
  relative_signs(hadamard.signs, p.relative);
  p.plain = plain;
  p.transformed = transformed;
  // No more thread blocks than are resident: in one sweep, which ends where the quantizer begins.
  const std::int64_t resident = processor_count(function) * kernels::transformed_amax_blocks;
  const std::int64_t across = ceil_div(p.quads, std::int64_t{1} << p.log2_across);
  const std::int64_t steps = ceil_div(p.groups, kernels::amax_threads >> p.log2_across);
  const std::int64_t down = std::min(steps, std::max<std::int64_t>(resident / across, 1));
  const std::int64_t deep = std::max<std::int64_t>(resident / (across * down), 1);
  const dim3 grid = grid_of(across, down, std::min(p.batch, deep));
  clear(function, transformed, false, stream, plain);
  const auto launch_of = [&]<class T>(T) {
    launch<Start::early>(function,
                         plain != nullptr ? kernels::transformed_amax_kernel<T, true>
                                          : kernels::transformed_amax_kernel<T, false>,
                         grid, kernels::amax_threads, 0, stream, p);
  };
  x.dtype == DType::bfloat16 ? launch_of(bfloat16{}) : launch_of(float16{});
}

void amax_of_transformed_columns(const char* function, const Buffer& x, float* amax,
                                 const Hadamard& hadamard, Stream stream) {
  if (is_in_one_read(x, hadamard)) {
    return amax_in_one_read(function, x, nullptr, amax, hadamard, stream);
  }
  kernels::QuantizeTileParameters p = {};
  p.x = x.data;
  p.batch = x.shape.batch;
  p.rows = x.shape.rows;
  p.columns = x.shape.columns;
  p.batch_stride = x.batch_stride;
  p.row_stride = x.row_stride;
  p.along_columns.options.hadamard_size = hadamard.size;
  p.along_columns.options.hadamard_signs = hadamard.signs;
  p.vector_loads = starts_on_16(x);
  clear(function, amax, false, stream);
  visit(x.dtype, [&]<class T>(TypeTag<T>) {
    const std::size_t elements = kernels::tile_extent * kernels::tile_extent;
    const std::size_t floats = hadamard.size > kernels::tile_segment ? elements * 4 : 0;
    launch<Start::early>(function, kernels::hadamard_columns_amax_kernel<T>,
                         grid_of(ceil_div(p.columns, kernels::tile_extent),
                                 ceil_div(p.rows, kernels::tile_extent), p.batch),
                         kernels::tile_threads, elements * sizeof(T) + floats, stream, p, amax);
  });
}

void find_amax(const char* function, const Buffer& x, float* amax, const Hadamard& hadamard,
               bool along_columns, int blocks, Stream stream) {
  if (x.shape.size() == 0) return clear(function, amax, false, stream);
  if (along_columns && hadamard.size != 0) {
    amax_of_transformed_columns(function, x, amax, hadamard, stream);
  } else {
    amax_of_rows(function, x, amax, hadamard, blocks, stream);
  }
}

}  // namespace

void tensor_amax(const char* function, const Buffer& x, float* amax, const Hadamard& hadamard,
                 bool along_columns, Stream stream) {
  find_amax(function, x, amax, hadamard, along_columns, resident_blocks(x.dtype), stream);
}

void both_amaxes(const char* function, const Buffer& x, float* plain, float* transformed,
                 const Hadamard& hadamard, Stream stream) {
  if (x.shape.size() != 0 && plain != transformed && is_in_one_read(x, hadamard)) {
    return amax_in_one_read(function, x, plain, transformed, hadamard, stream);
  }
  tensor_amax(function, x, plain, {}, false, stream);
  tensor_amax(function, x, transformed, hadamard, true, stream);
}

void tensor_amax(const Buffer& x, float* amax, const AmaxOptions& options, Stream stream) {
  constexpr const char* function = "tensor_amax";
  const DeviceScope scope(x.device, stream, function);
  check_device_pointer(function, "x", x.data, x.device);
  check_device_pointer(function, "amax", amax, x.device);
  if (options.columns) check_transform(function, x.dtype, options.hadamard.size);
  find_amax(function, x, amax, options.hadamard, options.columns, blocks_per_processor, stream);
}

void check_transform(const char* function, DType dtype, int hadamard_size) {
  if (dtype != DType::float32 || hadamard_size <= kernels::tile_segment) return;
  constexpr int bytes = 2 * kernels::tile_extent * kernels::tile_extent * 4;
  const int most = attribute_of(function, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  check<Unsupported>(bytes <= most, function, ": a Hadamard transform of ", hadamard_size,
                     " elements along the columns of float32 takes ", bytes,
                     " bytes of shared memory, and this device has ", most,
                     "; pass x in 16 bits, or a transform of at most ", kernels::tile_segment,
                     " elements");
}

void store_tensor_scale(const char* function, float* to, const QuantizeOptions& options,
                        Stream stream) {
  kernels::OctetOptions octet_options = {};
  octet_options.amax = options.amax != nullptr ? options.amax : options.found_amax;
  octet_options.tensor_scale = options.tensor_scale;
  launch(function, store_tensor_scale_kernel, dim3(1), 1, 0, stream, to, octet_options);
}

}  // namespace mxkern::cuda
