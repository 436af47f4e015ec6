// cuda/decode/multiply.cu: products of few tokens: arguments brought into form, kernels launched.
#include "cuda/decode/multiply.h"

#include <algorithm>

#include "check/arguments.h"
#include "cuda/decode/arguments.h"
#include "cuda/decode/folded_tokens.h"
#include "cuda/decode/launch.h"
#include "cuda/runtime/launch.h"
#include "mxkern/kernels/decode/gemm.cuh"

namespace mxkern::cuda {
namespace {

Buffer merged(Buffer buffer) {
  buffer.shape.rows *= buffer.shape.batch;
  buffer.shape.batch = 1;
  return buffer;
}

void check_decode(const char* function, const Buffer& x, Scheme scheme, const Shape& weights,
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

// The check that gemm_decode has code for a plan's rings, and both turn together.
void check_rings(const char* function, const DecodePlan& plan, Scheme scheme) {
  const SchemeFacts facts = facts_of(scheme);
  const int stages = kernels::DecodeShape{facts.bits, facts.block, plan.tokens}.stages();
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

// `wanted`: a plan for the device, or nullptr.
void run(const char* function, Buffer x, const ReorderedWeights& weights, CoreFinish finish,
         void* memory, Stream stream, const DecodePlan* wanted = nullptr,
         const TokenSource& source = {}) {
  const DecodeLayout layout =
      DecodeLayout::of(weights.scheme, weights.shape.rows, weights.shape.columns);
  if (merges_tokens(x, weights.shape, finish.out)) x = merged(x), finish.out = merged(finish.out);
  if (finish.out.shape.size() == 0) return;
  check(counts_decode(weights.scheme, weights.shape), function, ": N = ", layout.rows,
        " is beyond what products of few tokens take; prepare b with the form expanded");
  check(x.shape.rows < 1 << 30, function, ": M = ", x.shape.rows,
        " is beyond what products of few tokens take; divide a");
  const bool may_use_sm90 = wanted == nullptr && may_use_decode_sm90(x.dtype, x.shape.rows) &&
                            has_decode_sm90(function, weights.device);
  DecodePlan plan = wanted != nullptr ? *wanted
                                      : plan_decode_on(may_use_sm90, weights.scheme, x.shape.batch,
                                                       x.shape.rows, layout.rows, layout.columns,
                                                       processor_count(function), x.dtype);
  x = readable_tokens(function, x, memory, stream);
  kernels::DecodeParameters p = decode_parameters(layout, x, plan, finish);
  p.weight_batch_bytes = weights.shape.batch == 1 ? 0 : layout.size();
  p.x_batch_bytes = x.batch_stride * 2;
  p.tokens = static_cast<int>(x.shape.rows);
  p.out_batch_stride = finish.out.batch_stride;
  const auto out_bytes =
      finish.out.batch_stride * static_cast<std::int64_t>(size_of(finish.out.dtype));
  const std::int64_t token_tiles = ceil_div(x.shape.rows, plan.tokens);
  p.group_tokens = static_cast<int>(ceil_div(x.shape.rows, token_tiles));
  const std::int64_t groups = ceil_div(layout.tiles_down(), plan.row_tiles);
  constexpr std::int64_t most = 65535;
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
    if (source.is_folded) {
      launch_decode_folded(function, plan, grid, p, map_folded(function, matrices, p.group_tokens),
                           stream);
      continue;
    }
    const CUtensorMap map = map_tokens(function, matrices, p.group_tokens);
    if (source.is_expanded) plan.shared_bytes = lone_bytes(function, grid, plan.shared_bytes);
    visit(weights.scheme, [&](auto scheme) {
      using S = decltype(scheme);
      if (plan.on_sm90) {
        if (x.dtype == DType::float16) {
          launch_decode_sm90<S, true>(function, plan, grid, p, map, stream);
        } else {
          launch_decode_sm90<S, false>(function, plan, grid, p, map, stream);
        }
      } else {
        launch_decode<S>(function, x.dtype, plan, grid, p, map, stream);
      }
    });
  }
}

}  // namespace

void multiply_decode(const char* function, const Buffer& x, const ReorderedWeights& weights,
                     const CoreFinish& finish, Workspace workspace, Stream stream,
                     const TokenSource& source, const DecodePlan* plan) {
  check_decode(function, x, weights.scheme, weights.shape, finish.out, workspace,
               copied_tokens_bytes(x));
  const DeviceScope scope(weights.device, function);
  run(function, x, weights, finish, workspace.data, stream, plan, source);
}

void multiply_decode_folded(const DecodePlan& plan, const char* function, const RowScaled& x,
                            const ReorderedWeights& weights, const CoreFinish& finish, void* memory,
                            Stream stream) {
  const DeviceScope scope(weights.device, function);
  if (finish.out.shape.size() == 0) return;
  const InterleavedRows rows = interleave_rows(function, x, memory, weights.device, stream);
  run(function, rows.elements, weights, finish, memory, stream, &plan,
      {rows.exponents, false, true});
}

void multiply_decode_by(const DecodePlan& plan, const char* function, const Buffer& x,
                        const ReorderedWeights& weights, const CoreFinish& finish,
                        Workspace workspace, Stream stream) {
  check_decode(function, x, weights.scheme, weights.shape, finish.out, workspace,
               copied_tokens_bytes(x));
  if (!plan.on_sm90) check_rings(function, plan, weights.scheme);
  check<Unsupported>(
      !plan.on_sm90 || has_decode_sm90(function, weights.device), function,
      ": the plan is for compute capability 9.0; leave the choice to multiply_decode");
  const DeviceScope scope(weights.device, function);
  run(function, x, weights, finish, workspace.data, stream, &plan);
}

}  // namespace mxkern::cuda
