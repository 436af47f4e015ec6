// cuda/decode/grouped.cu: grouped products by the kernels for few tokens.
#include "cuda/decode/grouped.h"

#include <algorithm>

#include "check/arguments.h"
#include "cuda/decode/arguments.h"
#include "cuda/decode/folded_tokens.h"
#include "cuda/decode/launch.h"
#include "cuda/experts/swiglu.h"
#include "mxkern/kernels/decode/shared_memory.h"
#include "mxkern/kernels/decode/tokens.cuh"
#include "plan/grouped.h"

namespace mxkern::cuda {

void multiply_grouped(const char* function, const Buffer& x, const ReorderedWeights& weights,
                      const DeviceGroups& groups, const CoreFinish& finish, Workspace workspace,
                      Stream stream, const std::int32_t* exponents, const GatedOutput* gated) {
  const DeviceScope scope(weights.device, function);
  const DecodePlan plan = plan_grouped({weights.scheme, has_decode_sm90(function, weights.device),
                                        processor_count(function), groups.count, x.shape.rows,
                                        weights.shape.rows, weights.shape.columns});
  multiply_grouped_by(plan, function, x, weights, groups, finish, workspace, stream, exponents,
                      gated);
}

namespace {

// What a kernel is told of weights and groups, and the thread blocks it has.
struct GroupedKernel {
  kernels::DecodeParameters p;
  dim3 grid;
};

// Whether a kernel makes the SwiGLU of its sums.
bool can_gate(const DecodePlan& plan, std::int64_t outputs, const CoreFinish& finish,
              const GatedOutput& gated) {
  if (plan.on_sm90 || finish.beta != 0.0f || gated.out.dtype != finish.out.dtype) return false;
  if (gated.options.layout == GateLayout::interleaved) return true;
  return plan.row_tiles > 1 && outputs % (2 * DecodeLayout::tile_rows) == 0;
}

void put_gated(const GatedOutput& gated, kernels::DecodeParameters& p) {
  const SwigluOptions& o = gated.options;
  const bool is_apart = o.layout == GateLayout::halves;
  p.gated = {true, is_apart ? p.tiles_down / 2 : 0, o.alpha, o.limit, o.offset};
  p.out = gated.out.data;
  p.out_row_stride = gated.out.row_stride;
}

// x: an operand of so many rows, of which a thread block takes plan.tokens.
GroupedKernel grouped_kernel(const DecodePlan& plan, const char* function, const Buffer& x,
                             const ReorderedWeights& weights, const DeviceGroups& groups,
                             const CoreFinish& finish, const std::int32_t* exponents,
                             const GatedOutput* gated) {
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
  const std::int64_t places = places_of_groups(rows, groups.count, plan.tokens);
  p.groups_are_complete = groups.are_complete;
  if (gated != nullptr) put_gated(*gated, p);
  if (!plan.on_sm90) {
    // Teams, which have two tiles each where gates lie apart.
    const bool has_pairs = p.gated.tiles_behind > 0;
    if (has_pairs) p.row_tiles /= 2;
    const std::int64_t tiles = has_pairs ? p.gated.tiles_behind : layout.tiles_down();
    const kernels::DecodeShape shape{layout.bits, layout.block, plan.tokens};
    const std::int64_t most = std::int64_t{processor_count(function)} * shape.tenants();
    return {p, dim3(static_cast<unsigned>(std::clamp<std::int64_t>(places * tiles, 1, most)))};
  }
  const std::int64_t blocks = places * p.row_blocks;
  check(blocks < std::int64_t{1} << 31, function, ": ", rows, " rows of ", groups.count,
        " groups and N = ", layout.rows, " need ", blocks,
        " thread blocks; expected fewer than 2^31; divide a");
  return {p, dim3(static_cast<unsigned>(blocks))};
}

// For Hopper's kernel the first one alone.
kernels::RowBoxes boxes_of(const DecodePlan& plan, const char* function, const Buffer& x,
                           int group_tokens) {
  kernels::RowBoxes boxes = {};
  if (plan.on_sm90) {
    boxes.of[0] = map_tokens(function, x, group_tokens);
    return boxes;
  }
  for (int i = 0; i < kernels::RowBoxes::sizes; ++i) {
    boxes.of[i] = map_tokens(function, x, plan.tokens >> i);
  }
  return boxes;
}

}  // namespace

void multiply_grouped_by(const DecodePlan& plan, const char* function, const Buffer& given_x,
                         const ReorderedWeights& weights, const DeviceGroups& groups,
                         const CoreFinish& finish, Workspace workspace, Stream stream,
                         const std::int32_t* exponents, const GatedOutput* gated) {
  if (finish.out.shape.size() == 0) return;
  check(workspace.bytes >= copied_tokens_bytes(given_x), function, ": the workspace has ",
        workspace.bytes, " bytes; expected ", copied_tokens_bytes(given_x));
  const DeviceScope scope(weights.device, function);
  Buffer x = readable_tokens(function, given_x, workspace.data, stream);
  x.batch_stride = 0;
  const bool gates = gated != nullptr && can_gate(plan, weights.shape.rows, finish, *gated);
  const auto [p, grid] = grouped_kernel(plan, function, x, weights, groups, finish, exponents,
                                        gates ? gated : nullptr);
  const kernels::RowBoxes boxes = boxes_of(plan, function, x, p.group_tokens);
  visit(weights.scheme, [&](auto scheme) {
    using S = decltype(scheme);
    if (x.dtype == DType::float16) {
      launch_grouped<S, true>(function, plan, grid, p, boxes, stream);
    } else {
      launch_grouped<S, false>(function, plan, grid, p, boxes, stream);
    }
  });
  if (gated != nullptr && !gates) {
    swiglu(function, finish.out, gated->out, gated->options, stream);
  }
}

void multiply_grouped_folded(const DecodePlan& plan, const char* function, const RowScaled& x,
                             const ReorderedWeights& weights, const DeviceGroups& groups,
                             const CoreFinish& finish, void* memory, Stream stream,
                             const RowCopies& copies) {
  if (finish.out.shape.size() == 0) return;
  const DeviceScope scope(weights.device, function);
  const auto [rows, exponents] =
      interleave_rows(function, x, memory, weights.device, stream, copies);
  const auto [p, grid] =
      grouped_kernel(plan, function, rows, weights, groups, finish, exponents, nullptr);
  launch_grouped_folded(function, plan, grid, p, map_folded(function, rows, p.group_tokens),
                        stream);
}

}  // namespace mxkern::cuda
