// bindings/quantize_calls.cc: quantize along rows, columns and both, and back, over arrays of any
// framework.
#include <optional>

#include "quantize_arguments.h"

namespace nb = nanobind;

namespace mxkern::bindings {
namespace {

nb::object quantize(Calls& calls, const Signature& signature, bool columns, nb::handle x,
                    nb::handle scheme_name, const nb::dict& keywords) {
  Call call(calls, signature.function.c_str());
  const Given given = signature.read(keywords);
  const int scheme = scheme_of(call, scheme_name, given);
  Options options = options_of(call, signature, scheme, given);
  const int layout =
      call.one_of("scale_layout", given[Keyword::scale_layout], call.package().layout_names);
  const nb::handle out = given[Keyword::out], stream = given[Keyword::stream];
  const nb::handle amax = given[Keyword::amax], tensor_scale = given[Keyword::tensor_scale];
  call.enter("x", x);
  if (call.has_programs(stream)) {
    const nb::object q = call.reader().programs.attr("quantize")(
        call.function, "quantize",
        nb::make_tuple(call.function, scheme, layout, options.as_python(), columns), x, amax,
        tensor_scale, out);
    if (!q.is_none()) return q;
  }
  const StreamScope scope(call, stream, x);
  options.place(call, x);
  const QuantizeTarget target{scheme, layout, out, amax, tensor_scale};
  const Quantized made =
      quantize_one(call, call.look_plain("x", x), columns, options.value, target);
  if (out.is_none()) return call.result(made, x);
  call.mark_parts_written(out);
  return nb::borrow(out);
}

nb::object quantize_both(Calls& calls, const Signature& signature, nb::handle x,
                         nb::handle scheme_name, const nb::dict& keywords) {
  Call call(calls, signature.function.c_str());
  const Given given = signature.read(keywords);
  const int scheme = scheme_of(call, scheme_name, given);
  Options of_columns = options_of(call, signature, scheme, given), of_rows = of_columns;
  const nb::handle on_rows_too = given[Keyword::hadamard_rows];
  const bool on_rows =
      on_rows_too.ptr() != Py_False &&
      nb::cast<bool>(call.fault("hadamard_rows", on_rows_too, given[Keyword::hadamard]));
  if (!on_rows && given.has_options) of_rows = options_of(call, signature, scheme, given, false);
  const int layout =
      call.one_of("scale_layout", given[Keyword::scale_layout], call.package().layout_names);
  const nb::handle out = given[Keyword::out], stream = given[Keyword::stream];
  const nb::handle amax = given[Keyword::amax], tensor_scale = given[Keyword::tensor_scale];
  call.enter("x", x);
  if (call.has_programs(stream)) {
    const nb::object pair = call.reader().programs.attr("quantize")(
        call.function, "quantize_both",
        nb::make_tuple(scheme, layout, of_rows.as_python(), of_columns.as_python()), x, amax,
        tensor_scale, out);
    if (!pair.is_none()) return pair;
  }
  const StreamScope scope(call, stream, x);
  if (of_rows.has_array) {
    const nb::object placed =
        call.fault("placed_both", of_rows.object, of_columns.object, call.reader().adapter, x);
    of_rows = Options(placed[0]);
    of_columns = Options(placed[1]);
  }
  const QuantizeTarget target{scheme, layout, out, amax, tensor_scale};
  const auto [rows, columns] =
      quantize_two(call, call.look_plain("x", x), of_rows.value, of_columns.value, target);
  if (out.is_none()) return nb::make_tuple(call.result(rows, x), call.result(columns, x));
  call.mark_parts_written(nb::object(out[0]));
  call.mark_parts_written(nb::object(out[1]));
  return nb::borrow(out);
}

// through: whether JAX is told of the derivative.
nb::object fake_quantize(Calls& calls, const Signature& signature, nb::handle x,
                         nb::handle scheme_name, const nb::dict& keywords, bool through) {
  Call call(calls, signature.function.c_str());
  const Given given = signature.read(keywords);
  const int scheme = scheme_of(call, scheme_name, given);
  const nb::handle out = given[Keyword::out], stream = given[Keyword::stream];
  const nb::handle amax = given[Keyword::amax], tensor_scale = given[Keyword::tensor_scale];
  call.enter("x", x);
  if (call.has_programs(stream) && through) {
    return call.reader().programs.attr("straight_through")(&signature, x, scheme_name, keywords,
                                                           out);
  }
  Options options = options_of(call, signature, scheme, given);
  if (call.has_programs(stream)) {
    const nb::object y = call.reader().programs.attr("quantize")(
        call.function, "fake_quantize", nb::make_tuple(scheme, options.as_python()), x, amax,
        tensor_scale, out);
    if (!y.is_none()) return y;
  }
  const StreamScope scope(call, stream, x);
  options.place(call, x);
  Array array = call.look("x", x);
  if (array.element == Element::float64) throw IsCustom("");
  call.check_plain("x", array);
  const Extents extents = array.extents;
  const Span span = array.span();
  // The transpose of an array is quantized as it lies, and would be copied to be read in rows.
  const bool is_turned = is_symmetric(options.value) && !call.reader().converts && array.turn();
  const Plain plain = call.plain(array);
  const Device device = plain.view.device;
  QuantizeOptions wanted = options.value;
  call.read_scalars(amax, tensor_scale, scheme, device, wanted);
  // In place is fine; a shifted overlap is not.
  if (!out.is(x) || !plain.memory.is(plain.array.object)) call.take(span);
  const Output rounded = call.output(out, extents, static_cast<int>(plain.view.dtype), device);
  const bool chooses_for_squares = wanted.four_over_six && wanted.block_shape == BlockShape::square;
  const bool in_two_steps = is_turned || (chooses_for_squares && device.type == DeviceType::cuda);
  std::optional<Quantized> between;
  if (in_two_steps) between = call.made(scheme, 0, extents, device);
  call.make_found_amax(scheme, device, wanted);
  const Stream queue = call.stream(device);
  call.run(plain.view.shape.size(), [&] {
    if (!in_two_steps) {
      return mxkern::fake_quantize(plain.view, all_schemes[scheme], rounded.view, wanted, queue);
    }
    is_turned ? mxkern::quantize_columns(plain.view, between->view, wanted, queue)
              : mxkern::quantize(plain.view, between->view, wanted, queue);
    mxkern::dequantize(between->view, rounded.view, queue);
  });
  return call.finished(rounded, x);
}

Any tensor_amax(Calls& calls, nb::handle x, int size, std::uint64_t sign_mask_low,
                std::uint64_t sign_mask_high, bool columns, nb::handle out, nb::handle stream) {
  Call call(calls, "tensor_amax");
  call.enter("x", x);
  if (call.has_programs(stream)) {
    const nb::object amax = call.program(
        nb::make_tuple(size, sign_mask_low, sign_mask_high, columns), nb::make_tuple(x), out);
    if (!amax.is_none()) return amax;
  }
  const StreamScope scope(call, stream, x);
  const Plain plain = call.plain("x", x);
  const AmaxOptions options{{size, {sign_mask_low, sign_mask_high}}, columns};
  if (columns) check_columns(call, plain.array);
  check_groups(call, options.hadamard,
               columns ? transposed(plain.array.extents) : plain.array.extents);
  const Device device = plain.view.device;
  call.take(plain.array.span());
  const DenseOutput made = call.dense_output("out", out, Extents{}, Element::float32, device);
  const Stream queue = call.stream(device);
  call.run(plain.view.shape.size(), [&] {
    mxkern::tensor_amax(plain.view, static_cast<float*>(made.data), options, queue);
  });
  return call.finished(made, x);
}

nb::object dequantize(Calls& calls, nb::handle q, nb::handle dtype_name, nb::handle out,
                      nb::handle stream) {
  Call call(calls, "dequantize");
  const int dtype = call.dtype(dtype_name);
  const auto fields = call.fields("q", q);
  const nb::object& codes = fields[0];
  call.enter("q.codes", codes);
  if (call.has_programs(stream)) {
    call.scheme(fields[3]);  // which may be the user's own
    const nb::object x = call.program(nb::make_tuple(dtype), nb::make_tuple(q), out);
    if (!x.is_none()) return x;
  }
  const StreamScope scope(call, stream, codes);
  const Quantized read = call.quantized("q", q);
  for (const Span& span : read.spans) call.take(span);
  const Device device = read.view.device;
  const Output made = call.output(out, read.extents, device, dtype);
  const Stream queue = call.stream(device);
  call.run(read.view.shape.size(), [&] { mxkern::dequantize(read.view, made.view, queue); });
  return call.finished(made, codes);
}

}  // namespace

void bind_quantize_calls(nb::module_& module) {
  using namespace nb::literals;
  module
      .def("quantize", or_custom("quantize", &quantize), "calls"_a, "signature"_a, "columns"_a,
           "x"_a.none(), "scheme"_a.none(), "keywords"_a,
           nb::sig("def quantize(calls: Calls, signature: Signature, columns: bool, x: object, "
                   "scheme: object, keywords: collections.abc.Mapping[str, object]) -> "
                   "mxkern.values.block_scaled.BlockScaled"))
      .def("quantize_both", or_custom("quantize_both", &quantize_both), "calls"_a, "signature"_a,
           "x"_a.none(), "scheme"_a.none(), "keywords"_a,
           nb::sig("def quantize_both(calls: Calls, signature: Signature, x: object, scheme: "
                   "object, keywords: collections.abc.Mapping[str, object]) -> "
                   "tuple[mxkern.values.block_scaled.BlockScaled, "
                   "mxkern.values.block_scaled.BlockScaled]"))
      .def("fake_quantize", or_custom("fake_quantize", &fake_quantize), "calls"_a, "signature"_a,
           "x"_a.none(), "scheme"_a.none(), "keywords"_a, "through"_a = true,
           nb::sig("def fake_quantize(calls: Calls, signature: Signature, x: object, scheme: "
                   "object, keywords: collections.abc.Mapping[str, object], through: bool = True) "
                   "-> typing.Any"))
      .def("tensor_amax", &tensor_amax, "calls"_a, "x"_a.none(), "size"_a, "sign_mask_low"_a,
           "sign_mask_high"_a, "columns"_a, "out"_a.none(), "stream"_a.none())
      .def("dequantize", or_custom("dequantize", &dequantize), "calls"_a, "q"_a.none(),
           "dtype"_a.none(), "out"_a.none(), "stream"_a.none());
}

}  // namespace mxkern::bindings
