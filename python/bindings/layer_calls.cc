// bindings/layer_calls.cc: the forward of a linear layer in one call, as each call from Python
// costs the host some microseconds.
#include <optional>
#include <utility>

#include "product_arguments.h"
#include "quantize_arguments.h"

namespace nb = nanobind;

namespace mxkern::bindings {
namespace {

// Which direction of an operand backward takes.
enum class Kept : int { none, rows, columns };

void append_parts(nb::list& kept, const Quantized& q) {
  for (const nb::object& part : q.parts) {
    if (!part.is_none()) kept.append(part);
  }
}

// The rows of x [M, K], which is quantized along its columns too where backward takes those.
Quantized quantized_rows(Call& call, const Signature& signature, Name argument, nb::handle x,
                         nb::handle scheme_name, const nb::dict& keywords, Kept side,
                         nb::list& kept) {
  const Given given = signature.read(keywords);
  const nb::object none = nb::none();
  const QuantizeTarget target{scheme_of(call, scheme_name, given), 0, none, none, none};
  const auto options = [&](bool with_transform) {
    return options_of(call, signature, target.scheme, given, with_transform).value;
  };
  const Array array = call.look_plain(argument, x);
  if (side != Kept::columns) {
    Quantized rows = quantize_one(call, array, false, options(false), target);
    if (side == Kept::rows) append_parts(kept, rows);
    return rows;
  }
  auto [rows, columns] = quantize_two(call, array, options(false), options(true), target);
  append_parts(kept, columns);
  return std::move(rows);
}

nb::tuple linear_forward(Calls& calls, nb::handle x, nb::handle weight, nb::handle bias,
                         const Signature& signature, nb::handle x_scheme, const nb::dict& x_options,
                         int x_kept, nb::handle weight_scheme, const nb::dict& weight_options,
                         int weight_kept, nb::handle dtype_name, nb::handle precision) {
  Call call(calls, "linear");
  const int dtype = call.dtype(dtype_name);
  GemmOptions options;
  options.precision = static_cast<GemmPrecision>(
      call.one_of("precision", precision, call.package().precision_names));
  call.enter("x", x);
  call.detach();
  nb::list kept_of_x, kept_of_weight;
  const Quantized left = quantized_rows(call, signature, "x", x, x_scheme, x_options,
                                        static_cast<Kept>(x_kept), kept_of_x);
  Quantized right;
  if (call.package().block_scaled.made(weight)) {
    right = call.quantized("weight", weight);
  } else {
    right = quantized_rows(call, signature, "weight", weight, weight_scheme, weight_options,
                           static_cast<Kept>(weight_kept), kept_of_weight);
  }
  Extents extents = left.extents;
  extents.last() = right.extents.items[0];
  const Output y =
      multiplied(call, left.view, right.view, extents, bias, nb::none(), dtype, options);
  return nb::make_tuple(y.array, kept_of_weight, kept_of_x);
}

}  // namespace

void bind_layer_calls(nb::module_& module) {
  using namespace nb::literals;
  module.def(
      "linear_forward", &linear_forward, "calls"_a, "x"_a, "weight"_a, "bias"_a.none(),
      "signature"_a, "x_scheme"_a, "x_options"_a, "x_kept"_a, "weight_scheme"_a, "weight_options"_a,
      "weight_kept"_a, "dtype"_a, "precision"_a,
      nb::sig("def linear_forward(calls: Calls, x: object, weight: object, bias: object, "
              "signature: Signature, x_scheme: object, x_options: collections.abc.Mapping[str, "
              "object], x_kept: int, weight_scheme: object, weight_options: "
              "collections.abc.Mapping[str, object], weight_kept: int, dtype: object, precision: "
              "object) -> tuple[typing.Any, list[typing.Any], list[typing.Any]]"));
}

}  // namespace mxkern::bindings
