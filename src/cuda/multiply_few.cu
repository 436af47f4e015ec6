// cuda/multiply_few.cu: products of few tokens: arguments brought into form, kernels launched.
#include "cuda/multiply_few.h"

#include <algorithm>

#include "check.h"
#include "cuda/few_launch.h"
#include "cuda/launch.h"
#include "cuda/tensor_map.h"
#include "few_plans.h"
#include "mxkern/kernels/copy_tokens.cuh"
#include "mxkern/kernels/gemm_few.cuh"

namespace mxkern::cuda {
namespace {

// A batch whose weights are the same is one matrix of tokens, where memory allows it.
bool merges(const Buffer& x, const Shape& weights, const Buffer& out) {
  return weights.batch == 1 && x.shape.batch > 1 && is_one_matrix(x) && is_one_matrix(out);
}

Buffer merged(Buffer buffer) {
  buffer.shape.rows *= buffer.shape.batch;
  buffer.shape.batch = 1;
  return buffer;
}

// x as the kernels read it, 16 bytes at a time: copied to `memory` where it must be.
Buffer readable(const char* function, const Buffer& x, void* memory, Stream stream) {
  if (copied_tokens_bytes(x) == 0) return x;
  const std::int64_t columns = round_up(x.shape.columns, DecodeLayout::tile_columns);
  const kernels::CopyTokensParameters p{
      static_cast<const std::uint16_t*>(x.data),
      x.shape.batch,
      x.shape.rows,
      x.shape.columns,
      x.row_stride,
      x.batch_stride,
      static_cast<std::uint16_t*>(memory),
      columns,
  };
  launch(function, kernels::copy_tokens_kernel,
         grid_of(ceil_div(columns, kernels::copy_tokens_threads * 8), x.shape.rows, x.shape.batch),
         kernels::copy_tokens_threads, 0, stream, p);
  return Buffer::dense(memory, x.dtype, {x.shape.batch, x.shape.rows, columns}, x.device);
}

// Whether the device has the tensor cores of Hopper's warpgroups, and this build the code for them.
bool has_few_sm90([[maybe_unused]] const char* function, [[maybe_unused]] Device device) {
#if defined(MXKERN_HAS_SM90)
  return attribute_of(function, cudaDevAttrComputeCapabilityMajor, device.index) == 9;
#else
  return false;
#endif
}

// Boxes of 64 columns of so many tokens. Matrices that are all the same one are one of the map.
CUtensorMap map_tokens(const char* function, const Buffer& x, int rows) {
  return encode_tensor_map(
      function, {x.dtype == DType::float16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                           : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                 x.data,
                 {x.shape.columns, x.shape.rows, x.batch_stride == 0 ? 1 : x.shape.batch, 1},
                 {x.row_stride * 2, x.batch_stride * 2, 16},
                 {64, rows}});
}

void check_few(const char* function, const Buffer& x, Scheme scheme, const Shape& weights,
               const Buffer& out, Workspace workspace, std::size_t wanted) {
  check<InvalidType>(x.dtype != DType::float32, function,
                     ": the tokens have dtype float32; expected bfloat16 or float16");
  check(x.shape.columns == weights.columns, function, ": the tokens have K = ", x.shape.columns,
        " and the ", name_of(scheme), " weights ", weights.columns, "; expected the same");
  check_same_shape(function, "out", out.shape, {x.shape.batch, x.shape.rows, weights.rows});
  check(weights.batch == 1 || weights.batch == x.shape.batch, function, ": there are ",
        weights.batch, " matrices of weights for ", x.shape.batch,
        " of tokens; expected one, or as many");
  check(workspace.bytes >= wanted, function, ": the workspace has ", workspace.bytes,
        " bytes; expected ", wanted);
  check(starts_on(workspace.data, DecodeLayout::alignment) || wanted == 0, function,
        ": the workspace is not aligned to ", DecodeLayout::alignment, " bytes");
}

// The check that gemm_few has code for a plan's rings, and both turn together.
void check_rings(const char* function, const FewPlan& plan, Scheme scheme) {
  const SchemeFacts facts = facts_of(scheme);
  const int stages = kernels::FewShape{facts.bits, facts.block, plan.tokens}.stages();
  check(plan.stages >= 2 && (stages == 0 || plan.stages == stages) &&
            (plan.x_stages == 0 || plan.x_stages == plan.stages << plan.log2_parts),
        function, ": the plan has ", plan.stages, " stages of weights and ", plan.x_stages,
        " of tokens in ", 1 << plan.log2_parts, " parts; expected as many of both in a part, and ",
        stages == 0 ? 2 : stages, stages == 0 ? " or more" : "");
}

// Shared memory with which no two thread blocks share a multiprocessor, if each can have one of its
// own: where another kernel is ahead, multiprocessors become free one after the other.
int lone_bytes(const char* function, dim3 grid, int bytes) {
  const std::int64_t blocks = std::int64_t{grid.x} * grid.y * grid.z;
  if (blocks > processor_count(function)) return bytes;
  const int all = attribute_of(function, cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  return std::max(bytes, all / 2);
}

// `wanted`: a plan for Hopper, or nullptr.
void run(const char* function, Buffer x, const ReorderedWeights& weights, CoreFinish finish,
         void* memory, Stream stream, const FewPlan* wanted = nullptr,
         const TokenSource& source = {}) {
  const DecodeLayout layout =
      DecodeLayout::of(weights.scheme, weights.shape.rows, weights.shape.columns);
  if (merges(x, weights.shape, finish.out)) x = merged(x), finish.out = merged(finish.out);
  if (finish.out.shape.size() == 0) return;
  const bool may_use_sm90 = wanted == nullptr && may_use_few_sm90(x.dtype, x.shape.rows) &&
                            has_few_sm90(function, weights.device);
  FewPlan plan =
      wanted != nullptr
          ? *wanted
          : remembered_plan({weights.scheme, x.dtype, may_use_sm90, processor_count(function),
                             x.shape.batch, x.shape.rows, layout.rows, layout.columns});
  x = readable(function, x, memory, stream);
  kernels::FewParameters p{};
  p.layout = layout;
  p.tiles = static_cast<int>(layout.tiles_across());
  p.weight_batch_bytes = weights.shape.batch == 1 ? 0 : layout.size();
  p.x_row_bytes = x.row_stride * 2;
  p.x_batch_bytes = x.batch_stride * 2;
  p.kinds_offset = layout.kinds_offset();
  p.tokens = static_cast<int>(x.shape.rows);
  p.tiles_down = static_cast<int>(layout.tiles_down());
  p.log2_ranks = plan.log2_ranks;
  p.log2_parts = plan.log2_parts;
  p.row_tiles = plan.row_tiles;
  p.inverse_row_tiles = ceil_div(65536, plan.row_tiles);
  p.stages = plan.stages;
  p.x_stages = plan.x_stages;
  p.shared_bytes = plan.shared_bytes;
  put_finish(finish, p);
  p.out_dtype = finish.out.dtype;
  p.out_row_stride = finish.out.row_stride;
  p.out_batch_stride = finish.out.batch_stride;
  const auto out_bytes =
      finish.out.batch_stride * static_cast<std::int64_t>(size_of(finish.out.dtype));
  const std::int64_t token_tiles = ceil_div(x.shape.rows, plan.tokens);
  p.group_tokens = static_cast<int>(ceil_div(x.shape.rows, token_tiles));
  const std::int64_t groups = ceil_div(layout.tiles_down(), plan.row_tiles);
  constexpr std::int64_t most = 65535;
  check(counts_few(weights.scheme, weights.shape), function, ": N = ", layout.rows,
        " is beyond what products of few tokens take; prepare b with the form expanded");
  check(x.shape.rows < 1 << 30, function, ": M = ", x.shape.rows,
        " is beyond what products of few tokens take; divide a");
  for (std::int64_t batch = 0; batch < x.shape.batch; batch += most) {
    p.weights = weights.data + batch * p.weight_batch_bytes;
    p.x = static_cast<const std::uint8_t*>(x.data) + batch * p.x_batch_bytes;
    Buffer matrices = x;
    matrices.data = const_cast<std::uint8_t*>(p.x);
    matrices.shape.batch = std::min(most, x.shape.batch - batch);
    p.out = static_cast<std::uint8_t*>(finish.out.data) + batch * out_bytes;
    if (source.exponents != nullptr) p.x_exponents = source.exponents + batch * x.shape.rows;
    const dim3 grid(static_cast<unsigned>(token_tiles << plan.log2_ranks),
                    static_cast<unsigned>(groups + plan.idle_groups),
                    static_cast<unsigned>(matrices.shape.batch));
    const CUtensorMap map = map_tokens(function, matrices, p.group_tokens);
    if (source.is_expanded) plan.shared_bytes = lone_bytes(function, grid, plan.shared_bytes);
    visit(weights.scheme, [&](auto scheme) {
      using S = decltype(scheme);
      if (plan.on_sm90) {
        if (x.dtype == DType::float16) {
          launch_few_sm90<S, true>(function, plan, grid, p, map, stream);
        } else {
          launch_few_sm90<S, false>(function, plan, grid, p, map, stream);
        }
      } else {
        launch_few<S>(function, x.dtype, plan, grid, p, map, stream);
      }
    });
  }
}

}  // namespace

void multiply_few(const char* function, const Buffer& x, const ReorderedWeights& weights,
                  const CoreFinish& finish, Workspace workspace, Stream stream,
                  const TokenSource& source) {
  check_few(function, x, weights.scheme, weights.shape, finish.out, workspace,
            copied_tokens_bytes(x));
  const DeviceScope scope(weights.device, function);
  run(function, x, weights, finish, workspace.data, stream, nullptr, source);
}

void multiply_few_by(const FewPlan& plan, const char* function, const Buffer& x,
                     const ReorderedWeights& weights, const CoreFinish& finish, Workspace workspace,
                     Stream stream) {
  check_few(function, x, weights.scheme, weights.shape, finish.out, workspace,
            copied_tokens_bytes(x));
  if (!plan.on_sm90) check_rings(function, plan, weights.scheme);
  check<Unsupported>(has_few_sm90(function, weights.device), function,
                     ": the plan is for compute capability 9.0; leave the choice to multiply_few");
  const DeviceScope scope(weights.device, function);
  run(function, x, weights, finish, workspace.data, stream, &plan);
}

}  // namespace mxkern::cuda
