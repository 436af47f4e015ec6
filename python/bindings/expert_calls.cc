// bindings/expert_calls.cc: what mixtures of experts compute beside grouped products, and a whole
// layer of one, over arrays of any framework.
#include "calls.h"
#include "product_arguments.h"

namespace nb = nanobind;

namespace mxkern::bindings {
namespace {

SwigluOptions swiglu_options(const Call& call, nb::handle alpha, nb::handle limit,
                             nb::handle offset, bool is_interleaved) {
  return {call.number("alpha", alpha), call.number("limit", limit), call.number("offset", offset),
          is_interleaved ? GateLayout::interleaved : GateLayout::halves};
}

Any swiglu(Calls& calls, nb::handle x, nb::handle alpha, nb::handle limit, nb::handle offset,
           bool is_interleaved, nb::handle out, nb::handle stream) {
  Call call(calls, "swiglu");
  const SwigluOptions options = swiglu_options(call, alpha, limit, offset, is_interleaved);
  call.enter("x", x);
  const StreamScope scope(call, stream, x);
  const Plain plain = call.plain("x", x);
  Extents extents = plain.array.extents;
  if (extents.last() % 2 != 0) call.fault("no_gates", "x", extents.tuple());
  extents.last() /= 2;
  call.take(plain.array.span());
  const Device device = plain.view.device;
  const Output made = call.output(out, extents, static_cast<int>(plain.view.dtype), device);
  const Stream queue = call.stream(device);
  call.run(plain.view.shape.size(), [&] { mxkern::swiglu(plain.view, made.view, options, queue); });
  return call.finished(made, x);
}

Any combine(Calls& calls, nb::handle y, nb::handle rows, nb::handle weights, std::int64_t tokens,
            nb::handle dtype_name, nb::handle out, nb::handle stream) {
  Call call(calls, "combine");
  call.enter("y", y);
  const StreamScope scope(call, stream, y);
  const Plain plain = call.plain("y", y);
  const Device device = plain.view.device;
  Extents extents = plain.array.extents;
  if (extents.dimensions != 2) call.fault("copies_shape", extents.tuple());
  std::int64_t count = extents.items[0];
  call.take(plain.array.span());
  std::vector<nb::object> kept;
  const auto* numbers = numbers_of<std::int32_t>(call, "rows", rows, Element::int32, count, device,
                                                 kept, "row_numbers");
  const float* factors = nullptr;
  if (!weights.is_none()) {
    factors = numbers_of<float>(call, "weights", weights, Element::float32, count, device, kept,
                                "row_numbers");
  }
  extents.items[0] = tokens;
  const int own = static_cast<int>(plain.view.dtype);
  const Output made =
      dtype_name.is_none() && !out.is_none()
          ? call.output(out, extents, device, 0)
          : call.output(out, extents, dtype_name.is_none() ? own : call.dtype(dtype_name), device);
  const Stream queue = call.stream(device);
  run_with(call, plain.view.shape.size(), combine_workspace_bytes(count, tokens), device,
           [&](Workspace workspace) {
             mxkern::combine(plain.view, numbers, factors, made.view, workspace, queue);
           });
  return call.finished(made, y);
}

// The arguments of a layer as the library has them.
struct ExpertArguments {
  Operand<GemmRightOperand> gate_up, down;
  Operand<GemmOperand> x;
  Device device;
  std::vector<nb::object> kept;
  std::vector<std::int32_t> ends;  // on the CPU: another thread may write to the caller's
  ExpertWeights weights;
  ExpertRouting routing;
  GroupBias biases[2];

  ExpertArguments(Call& call, nb::handle tokens, nb::handle up, nb::handle down_weights)
      : gate_up(call.right(up, "gate_up")), down(call.right(down_weights, "down")) {
    x = call.left(tokens, "x");
    const Extents &a = x.extents, &b = gate_up.extents, &c = down.extents;
    const bool fit = a.dimensions == 2 && b.dimensions == 3 && c.dimensions == 3 &&
                     a.items[1] == b.items[2] && b.items[1] % 2 == 0 &&
                     c.items[2] == b.items[1] / 2 && c.items[0] == b.items[0];
    if (!fit) call.fault("expert_shapes", a.tuple(), b.tuple(), c.tuple());
    device = source_of(gate_up.view).device;
    take(call, x.spans);
    take(call, gate_up.spans);
    take(call, down.spans);
    weights.gate_up = gate_up.view;
    weights.down = down.view;
  }

  void read_routing(Call& call, nb::handle given_ends, nb::handle rows, nb::handle given_weights) {
    std::int64_t experts = gate_up.extents.items[0];
    routing.experts.ends =
        numbers_of<std::int32_t>(call, "ends", given_ends, Element::int32, experts, device, kept);
    routing.experts.count = experts;
    if (device.type == DeviceType::cpu && experts > 0) {
      ends.assign(routing.experts.ends, routing.experts.ends + experts);
      routing.experts.ends = ends.data();
    }
    routing.copies = -1;
    routing.rows = numbers_of<std::int32_t>(call, "rows", rows, Element::int32, routing.copies,
                                            device, kept, "row_numbers");
    if (given_weights.is_none()) return;
    routing.weights = numbers_of<float>(call, "weights", given_weights, Element::float32,
                                        routing.copies, device, kept, "row_numbers");
  }

  const float* factors(Call& call, Name argument, nb::handle given) {
    if (given.is_none()) return nullptr;
    std::int64_t experts = routing.experts.count;
    return numbers_of<float>(call, argument, given, Element::float32, experts, device, kept);
  }

  void read_others(Call& call, nb::handle up_bias, nb::handle down_bias, nb::handle up_factors,
                   nb::handle down_factors) {
    const std::int64_t experts = routing.experts.count;
    biases[0] = GroupBias(call, "gate_up_bias", up_bias, experts, gate_up.extents.items[1]);
    biases[1] = GroupBias(call, "down_bias", down_bias, experts, down.extents.items[1]);
    weights.gate_up_bias = biases[0].buffer();
    weights.down_bias = biases[1].buffer();
    weights.gate_up_factors = factors(call, "gate_up_factors", up_factors);
    weights.down_factors = factors(call, "down_factors", down_factors);
  }

  std::int64_t work() const {
    return routing.copies * gate_up.extents.items[1] * gate_up.extents.items[2];
  }
};

// That of a plain x, or bfloat16.
int default_dtype(const GemmOperand& x) {
  const auto* plain = std::get_if<Buffer>(&x);
  return static_cast<int>(plain == nullptr ? DType::bfloat16 : plain->dtype);
}

// scheme, options: None where rows are not quantized.
Any expert_layer(Calls& calls, nb::handle x, nb::handle gate_up, nb::handle down, nb::handle ends,
                 nb::handle rows, nb::handle weights, nb::handle gate_up_bias, nb::handle down_bias,
                 nb::handle gate_up_factors, nb::handle down_factors, nb::handle alpha,
                 nb::handle limit, nb::handle offset, bool is_interleaved, nb::handle scheme,
                 const QuantizeOptions* quantizing, nb::handle precision, nb::handle dtype_name,
                 nb::handle out, nb::handle stream) {
  Call call(calls, "expert_layer");
  ExpertLayerOptions options;
  options.activation = swiglu_options(call, alpha, limit, offset, is_interleaved);
  options.precision = grouped_precision(call, precision);
  if (quantizing != nullptr) {
    options.scheme = all_schemes[call.scheme(scheme)];
    options.scale_rule = quantizing->scale_rule;
  }
  call.enter_operand(gate_up, "gate_up");
  const StreamScope scope(call, stream, stream.is_none() ? nb::none() : array_of(call, gate_up));
  ExpertArguments given(call, x, gate_up, down);
  given.read_routing(call, ends, rows, weights);
  given.read_others(call, gate_up_bias, down_bias, gate_up_factors, down_factors);
  Extents extents = given.x.extents;
  extents.last() = given.down.extents.items[1];
  const Device device = given.device;
  const bool is_open = dtype_name.is_none();
  const int dtype = is_open ? default_dtype(given.x.view) : call.dtype(dtype_name);
  const Output made = is_open && !out.is_none() ? call.output(out, extents, device, 0)
                                                : call.output(out, extents, dtype, device);
  const Stream queue = call.stream(device);
  std::size_t bytes = 0;
  call.run(0, [&] {
    bytes = expert_layer_workspace_bytes(given.x.view, given.weights, given.routing, made.view,
                                         options);
  });
  run_with(call, given.work(), bytes, device, [&](Workspace workspace) {
    mxkern::expert_layer(given.x.view, given.weights, given.routing, made.view, options, workspace,
                         queue);
  });
  return call.finished(made, array_of(call, gate_up));
}

}  // namespace

void bind_expert_calls(nb::module_& module) {
  using namespace nb::literals;
  module
      .def("swiglu", &swiglu, "calls"_a, "x"_a.none(), "alpha"_a.none(), "limit"_a.none(),
           "offset"_a.none(), "interleaved"_a, "out"_a.none(), "stream"_a.none())
      .def("combine", &combine, "calls"_a, "y"_a.none(), "rows"_a.none(), "weights"_a.none(),
           "tokens"_a, "dtype"_a.none(), "out"_a.none(), "stream"_a.none())
      .def("expert_layer", &expert_layer, "calls"_a, "x"_a.none(), "gate_up"_a.none(),
           "down"_a.none(), "ends"_a.none(), "rows"_a.none(), "weights"_a.none(),
           "gate_up_bias"_a.none(), "down_bias"_a.none(), "gate_up_factors"_a.none(),
           "down_factors"_a.none(), "alpha"_a.none(), "limit"_a.none(), "offset"_a.none(),
           "interleaved"_a, "scheme"_a.none(), "options"_a.none(), "precision"_a.none(),
           "dtype"_a.none(), "out"_a.none(), "stream"_a.none());
}

}  // namespace mxkern::bindings
