// cuda/decode/grouped.cu: grouped products by the kernels for few tokens.
#include "cuda/decode/grouped.h"

#include "check/arguments.h"
#include "cuda/decode/arguments.h"
#include "cuda/decode/folded_tokens.h"
#include "cuda/decode/launch.h"
#include "plan/grouped.h"

namespace mxkern::cuda {

void multiply_grouped(const char* function, const Buffer& x, const ReorderedWeights& weights,
                      const DeviceGroups& groups, const CoreFinish& finish, Workspace workspace,
                      Stream stream, const std::int32_t* exponents) {
  const DeviceScope scope(weights.device, function);
  const DecodePlan plan = plan_grouped({weights.scheme, has_decode_sm90(function, weights.device),
                                        processor_count(function), groups.count, x.shape.rows,
                                        weights.shape.rows, weights.shape.columns});
  multiply_grouped_by(plan, function, x, weights, groups, finish, workspace, stream, exponents);
}

namespace {

// What a kernel is told of weights and groups, and the thread blocks it has.
struct GroupedKernel {
  kernels::DecodeParameters p;
  dim3 grid;
};

// x: an operand of so many rows, of which a thread block takes plan.tokens.
GroupedKernel grouped_kernel(const DecodePlan& plan, const char* function, const Buffer& x,
                             const ReorderedWeights& weights, const DeviceGroups& groups,
                             const CoreFinish& finish, const std::int32_t* exponents) {
  const std::int64_t rows = x.shape.rows;
  check(counts_decode(weights.scheme, weights.shape), function, ": N = ", weights.shape.rows,
        " is beyond what grouped products take; divide b");
  check(rows < 1 << 30 && groups.count < 1 << 30, function, ": there are ", rows, " rows and ",
        groups.count, " groups; expected fewer than 2^30; divide a");
  const DecodeLayout layout =
      DecodeLayout::of(weights.scheme, weights.shape.rows, weights.shape.columns);
  kernels::DecodeParameters p = decode_parameters(layout, x, plan, finish);
  p.weights = weights.data;
  p.weight_batch_bytes = layout.size();
  p.x = static_cast<const std::uint8_t*>(x.data);
  p.x_exponents = exponents;
  p.group_tokens = static_cast<int>(lower_of<std::int64_t>(plan.tokens, rows));
  p.out = finish.out.data;
  p.groups = {groups.ends, static_cast<int>(groups.count), static_cast<int>(rows)};
  p.row_blocks = static_cast<int>(ceil_div(layout.tiles_down(), plan.row_tiles));
  p.bias_step = groups.bias_step;
  p.group_factors = groups.factors;
  const std::int64_t blocks = places_of_groups(rows, groups.count, plan.tokens) * p.row_blocks;
  check(blocks < std::int64_t{1} << 31, function, ": ", rows, " rows of ", groups.count,
        " groups and N = ", layout.rows, " need ", blocks,
        " thread blocks; expected fewer than 2^31; divide a");
  return {p, dim3(static_cast<unsigned>(blocks))};
}

}  // namespace

void multiply_grouped_by(const DecodePlan& plan, const char* function, const Buffer& given_x,
                         const ReorderedWeights& weights, const DeviceGroups& groups,
                         const CoreFinish& finish, Workspace workspace, Stream stream,
                         const std::int32_t* exponents) {
  if (finish.out.shape.size() == 0) return;
  check(workspace.bytes >= copied_tokens_bytes(given_x), function, ": the workspace has ",
        workspace.bytes, " bytes; expected ", copied_tokens_bytes(given_x));
  const DeviceScope scope(weights.device, function);
  Buffer x = readable_tokens(function, given_x, workspace.data, stream);
  x.batch_stride = 0;
  const auto [p, grid] = grouped_kernel(plan, function, x, weights, groups, finish, exponents);
  const CUtensorMap map = map_tokens(function, x, p.group_tokens);
  visit(weights.scheme, [&](auto scheme) {
    using S = decltype(scheme);
    if (x.dtype == DType::float16) {
      launch_grouped<S, true>(function, plan, grid, p, map, stream);
    } else {
      launch_grouped<S, false>(function, plan, grid, p, map, stream);
    }
  });
}

void multiply_grouped_folded(const DecodePlan& plan, const char* function, const RowScaled& x,
                             const ReorderedWeights& weights, const DeviceGroups& groups,
                             const CoreFinish& finish, void* memory, Stream stream,
                             const RowCopies& copies) {
  if (finish.out.shape.size() == 0) return;
  const DeviceScope scope(weights.device, function);
  const auto [rows, exponents] =
      interleave_rows(function, x, memory, weights.device, stream, copies);
  const auto [p, grid] = grouped_kernel(plan, function, rows, weights, groups, finish, exponents);
  launch_grouped_folded(function, plan, grid, p, map_folded(function, rows, p.group_tokens),
                        stream);
}

}  // namespace mxkern::cuda
