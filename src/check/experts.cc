// check/experts.cc: the checks of the arguments of what mixtures of experts compute beside
// products.
#include "check/experts.h"

#include <cmath>
#include <limits>

#include "check/arguments.h"
#include "check/gemm.h"
#include "check/gemm_operand.h"

namespace mxkern {
namespace {

constexpr const char* layer = "expert_layer";

Occupied numbers(const char* argument, const void* data, std::int64_t count) {
  return {argument, "", data, static_cast<std::size_t>(count) * 4};
}

// Numbers of four bytes; those that may be left out may be null.
void check_numbers(const char* function, const char* argument, const void* data, std::int64_t count,
                   bool is_optional = false) {
  if (is_optional && data == nullptr) return;
  check_memory(function, argument, "", data, static_cast<std::size_t>(count) * 4, 4);
}

// Rows and tokens are counted in 31 bits.
void check_countable(const char* function, const char* what, std::int64_t count) {
  check(count <= std::numeric_limits<std::int32_t>::max() - 1, function, ": there are ", count, " ",
        what, "; expected fewer than 2^31 - 1, as int32 counts them");
}

// Biases of `columns` outputs.
void check_bias(const char* argument, const Buffer* bias, std::int64_t experts,
                std::int64_t columns, Device device) {
  if (bias == nullptr) return;
  check_buffer(layer, argument, *bias);
  check_same_shape(layer, argument, bias->shape, {experts, 1, columns});
  check_same_device(layer, argument, bias->device, device);
}

void check_weights(const char* argument, const GemmRightOperand& weights, const Shape& wanted,
                   Device device) {
  check_operand(layer, argument, weights);
  check_same_shape(layer, argument, source_of(weights).shape, wanted);
  check_same_device(layer, argument, source_of(weights).device, device);
}

// Memory that is written lies apart from all that is read.
void check_layer_apart(const Occupied& written, const GemmOperand& x, const ExpertWeights& weights,
                       const ExpertRouting& routing) {
  const std::int64_t experts = routing.experts.count;
  check_apart(layer, written, x, weights.gate_up);
  check_apart(layer, written, x, weights.down);
  check_apart(layer, written, numbers("experts.ends", routing.experts.ends, experts));
  check_apart(layer, written, numbers("rows", routing.rows, routing.copies));
  const auto check_given = [&](const char* argument, const float* data, std::int64_t count) {
    if (data != nullptr) check_apart(layer, written, numbers(argument, data, count));
  };
  check_given("weights", routing.weights, routing.copies);
  check_given("gate_up_factors", weights.gate_up_factors, experts);
  check_given("down_factors", weights.down_factors, experts);
  if (weights.gate_up_bias != nullptr) {
    check_apart(layer, written, {"gate_up_bias", *weights.gate_up_bias});
  }
  if (weights.down_bias != nullptr) check_apart(layer, written, {"down_bias", *weights.down_bias});
}

}  // namespace

void check_swiglu(const char* function, const SwigluOptions& options) {
  check(is_listed(options.layout, all_gate_layouts), function, ": layout is number ",
        static_cast<int>(options.layout), "; expected halves or interleaved");
  check(std::isfinite(options.alpha) && std::isfinite(options.offset), function, ": alpha is ",
        options.alpha, " and offset ", options.offset, "; expected finite numbers");
  check(options.limit > 0, function, ": limit is ", options.limit,
        "; expected a number above 0, or Inf for none");
}

void check_combine(const Buffer& y, const std::int32_t* rows, const float* weights,
                   const Buffer& out) {
  constexpr const char* function = "combine";
  check_buffer(function, "y", y);
  check_buffer(function, "out", out);
  check(y.shape.batch == 1, function, ": y has a batch of ", y.shape.batch,
        "; expected one matrix");
  check_same_shape(function, "out", out.shape, {1, out.shape.rows, y.shape.columns});
  check_countable(function, "rows", y.shape.rows);
  check_countable(function, "tokens", out.shape.rows);
  check_same_device(function, "out", out.device, y.device);
  check_numbers(function, "rows", rows, y.shape.rows);
  check_numbers(function, "weights", weights, y.shape.rows, true);
  check_output(function, "out", out);
  check_device(function, y.device);
  const Occupied written("out", out);
  check_apart(function, written, {"y", y});
  check_apart(function, written, numbers("rows", rows, y.shape.rows));
  if (weights != nullptr) {
    check_apart(function, written, numbers("weights", weights, y.shape.rows));
  }
}

void check_expert_layer(const GemmOperand& x, const ExpertWeights& weights,
                        const ExpertRouting& routing, const Buffer& out,
                        const ExpertLayerOptions& options) {
  check_swiglu(layer, options.activation);
  check(options.precision == GemmPrecision::exact || options.precision == GemmPrecision::folded,
        layer, ": precision is ", name_of(options.precision), "; expected exact or folded");
  if (options.scheme) {
    check(is_listed(*options.scheme, all_schemes), layer, ": scheme is number ",
          static_cast<int>(*options.scheme), "; expected one of the schemes");
    check(is_listed(options.scale_rule, all_scale_rules), layer, ": scale_rule is number ",
          static_cast<int>(options.scale_rule), "; expected one of the scale rules");
  }
  check_buffer(layer, "out", out);
  check_operand(layer, "x", x);
  const Shape tokens = shape_of(x);
  const Shape up = source_of(weights.gate_up).shape, down = source_of(weights.down).shape;
  const std::int64_t experts = routing.experts.count;
  check(experts >= 0 && routing.copies >= 0, layer, ": there are ", experts, " experts and ",
        routing.copies, " copies; expected none below zero");
  check_countable(layer, "copies", routing.copies);
  check_countable(layer, "tokens", tokens.rows);
  check(tokens.batch == 1, layer, ": x has a batch of ", tokens.batch,
        "; expected one matrix of tokens");
  check(up.rows % 2 == 0, layer, ": gate_up has ", up.rows,
        " rows a matrix; expected an even number, as half of them are gates");
  check_weights("gate_up", weights.gate_up, {experts, up.rows, tokens.columns}, out.device);
  check_weights("down", weights.down, {experts, down.rows, up.rows / 2}, out.device);
  check_same_shape(layer, "out", out.shape, {1, tokens.rows, down.rows});
  const Device device = visit_source(x, [](const auto& left) { return left.device; });
  check_same_device(layer, "x", device, out.device);
  check_numbers(layer, "experts.ends", routing.experts.ends, experts);
  check_numbers(layer, "rows", routing.rows, routing.copies);
  check_numbers(layer, "weights", routing.weights, routing.copies, true);
  check_numbers(layer, "gate_up_factors", weights.gate_up_factors, experts, true);
  check_numbers(layer, "down_factors", weights.down_factors, experts, true);
  check_bias("gate_up_bias", weights.gate_up_bias, experts, up.rows, out.device);
  check_bias("down_bias", weights.down_bias, experts, down.rows, out.device);
  check_output(layer, "out", out);
  check_device(layer, out.device);
  check_layer_apart({"out", out}, x, weights, routing);
}

void check_expert_workspace(Workspace workspace, std::size_t bytes, const GemmOperand& x,
                            const ExpertWeights& weights, const ExpertRouting& routing,
                            const Buffer& out) {
  check_layer_apart(check_workspace(layer, workspace, bytes, out), x, weights, routing);
}

}  // namespace mxkern
