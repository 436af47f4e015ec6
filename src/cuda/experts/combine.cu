// cuda/experts/combine.cu: launches of the kernels that add up the rows of each token.
#include "cuda/experts/combine.h"

#include <algorithm>

#include "cuda/runtime/device_scope.h"
#include "cuda/runtime/launch.h"
#include "mxkern/kernels/experts/combine.cuh"
#include "plan/combine.h"

namespace mxkern::cuda {

static_assert(kernels::listed_rows == listed_rows_of_a_token);

namespace {

void list_rows(const char* function, kernels::CombineParameters& p, void* memory, Stream stream) {
  p.counts = static_cast<std::int32_t*>(memory);
  p.lists = p.counts + p.tokens + 1;
  const auto count_bytes = static_cast<std::size_t>(p.tokens + 1) * sizeof(std::int32_t);
  check_cuda(cudaMemsetAsync(p.counts, 0, count_bytes, handle_of(stream)), function,
             "clear working memory");
  constexpr int threads = kernels::combine_threads;
  const std::int64_t most_blocks = std::int64_t{8} * processor_count(function);
  // At least one: it also looks whether the number of rows is right.
  const std::int64_t blocks = std::clamp<std::int64_t>(ceil_div(p.count, threads), 1, most_blocks);
  launch<Start::early>(function, kernels::list_rows_kernel, grid_of(blocks), threads, 0, stream, p);
}

}  // namespace

void combine(const char* function, const Buffer& y, const std::int32_t* rows,
             const std::int32_t* end, const float* weights, const Buffer& out, void* memory,
             Stream stream, bool rows_are_complete) {
  const DeviceScope scope(out.device, stream, function);
  check_device_pointer(function, "y", y.data, out.device);
  check_device_pointer(function, "rows", rows, out.device);
  check_device_pointer(function, "ends", end, out.device);
  check_device_pointer(function, "weights", weights, out.device);
  check_device_pointer(function, "out", out.data, out.device);
  check_device_pointer(function, "workspace", memory, out.device);
  if (out.shape.size() == 0) return;
  kernels::CombineParameters p = {};
  p.rows = rows;
  p.count = y.shape.rows;
  p.end = end;
  p.y = y.data;
  p.y_row_stride = y.row_stride;
  p.weights = weights;
  p.out = out.data;
  p.out_dtype = out.dtype;
  p.out_row_stride = out.row_stride;
  p.tokens = out.shape.rows;
  p.columns = out.shape.columns;
  p.vectors = starts_on_16(y);
  p.rows_are_complete = rows_are_complete;
  constexpr int threads = kernels::combine_threads;
  if (std::max(p.count, p.tokens) > kernels::few_rows) list_rows(function, p, memory, stream);
  const dim3 grid = grid_of(p.tokens, ceil_div(p.columns, std::int64_t{8} * threads));
  visit(y.dtype, [&](auto type) {
    using T = typename decltype(type)::type;
    launch<Start::early>(function, kernels::combine_kernel<T>, grid, threads, 0, stream, p);
  });
}

}  // namespace mxkern::cuda
