// bindings/prepare_calls.cc: operands of products, made ready ahead, from arrays of any framework.
#include <optional>

#include "calls.h"
#include "product_arguments.h"

namespace nb = nanobind;

namespace mxkern::bindings {
namespace {

// wanted: a form, or -1 for the best one.
PreparedForm form_of(const Call& call, int wanted, Scheme scheme, Device device) {
  PreparedForm form = PreparedForm::source;
  call.run(0, [&] {
    form = wanted < 0 ? best_prepared_form(scheme, device)
                      : usable_prepared_form(static_cast<PreparedForm>(wanted), scheme, device);
  });
  return form;
}

nb::object made_of(const Call& call, PreparedForm form, nb::handle data, nb::handle source,
                   Scheme scheme, const Extents& extents) {
  return call.package().prepared_operand.make(
      call.package().form_names[static_cast<std::size_t>(form)], data, source,
      call.package().scheme_names[static_cast<std::size_t>(scheme)], extents.tuple());
}

// A part of a larger array where `made` starts inside of a cache line: vectors that lie in two take
// twice as long to read.
nb::object on_cache_lines(Call& call, const nb::object& made, PreparedOperand& prepared,
                          Extents size) {
  constexpr std::size_t line = 64;
  const auto past_line = [&] { return reinterpret_cast<std::uintptr_t>(prepared.data) % line; };
  if (past_line() == 0) return made;
  size.last() += line;
  const nb::object larger = call.make(size, Element::uint8, prepared.source.device, prepared.data);
  const std::size_t first = (line - past_line()) % line;
  prepared.data = static_cast<std::uint8_t*>(prepared.data) + first;
  return larger[nb::slice(nb::int_(first), nb::int_(first + prepared.bytes), nb::none())];
}

// Memory for what prepare_operand writes: `given`, or new where that is None.
DenseOutput make_data(Call& call, PreparedOperand& prepared, nb::handle given) {
  prepared.bytes = prepared_bytes(prepared.form, prepared.source.scheme, prepared.source.shape);
  const Extents size({static_cast<std::int64_t>(prepared.bytes)});
  DenseOutput made =
      call.dense_output("out.data", given, size, Element::uint8, prepared.source.device);
  prepared.data = made.data;
  if (!made.is_given && prepared.form == PreparedForm::panels) {
    made.array = on_cache_lines(call, made.array, prepared, size);
  }
  return made;
}

nb::object prepare_quantized(Call& call, nb::handle q, int wanted, bool keep_source,
                             nb::handle given) {
  const Quantized read = call.quantized("x", q);
  for (const Span& span : read.spans) call.take(span);
  const Scheme scheme = read.view.scheme;
  PreparedOperand prepared;
  prepared.form = form_of(call, wanted, scheme, read.view.device);
  prepared.source = read.view;
  if (prepared.form == PreparedForm::source) {
    return made_of(call, prepared.form, nb::none(), q, scheme, read.extents);
  }
  const DenseOutput data = make_data(call, prepared, given);
  const Stream queue = call.stream(read.view.device);
  call.run(0, [&] { mxkern::prepare_operand(read.view, prepared, queue); });
  const bool keeps = keep_source || facts_of(scheme).has_tensor_scale;
  return made_of(call, prepared.form, call.finished(data, nb::getattr(q, "codes")),
                 keeps ? nb::borrow(q) : nb::none(), scheme, read.extents);
}

// Quantized and folded in one pass, to MX schemes; else quantized first.
nb::object prepare_plain(Call& call, nb::handle x, int scheme, const QuantizeOptions& options,
                         int wanted, bool keep_source, nb::handle given) {
  const Plain plain = call.plain("x", x);
  call.take(plain.array.span());
  const Device device = plain.view.device;
  const Extents& extents = plain.array.extents;
  PreparedOperand prepared;
  prepared.form = form_of(call, wanted, all_schemes[scheme], device);
  const Stream queue = call.stream(device);
  const bool folds = prepared.form == PreparedForm::folded;
  std::optional<Quantized> source;
  if (keep_source || !folds) source = call.made(scheme, 0, extents, device);
  if (!folds) {
    QuantizeOptions finding = options;
    call.make_found_amax(scheme, device, finding);
    call.run(plain.view.shape.size(),
             [&] { mxkern::quantize(plain.view, source->view, finding, queue); });
    return prepare_quantized(call, call.result(*source, x), wanted, keep_source, given);
  }
  prepared.source =
      source
          ? source->view
          : BlockScaled{.scheme = all_schemes[scheme], .shape = extents.shape(), .device = device};
  const DenseOutput data = make_data(call, prepared, given);
  call.run(plain.view.shape.size(),
           [&] { mxkern::prepare_operand(plain.view, prepared, options, queue); });
  return made_of(call, prepared.form, call.finished(data, x),
                 source ? call.result(*source, x) : nb::none(), all_schemes[scheme], extents);
}

// scheme, options: None where x is quantized already. data: to write to, or None.
nb::object prepare_operand(Calls& calls, nb::handle x, nb::handle scheme_name,
                           const QuantizeOptions* options, int form, bool keep_source,
                           nb::handle data, nb::handle stream) {
  Call call(calls, "prepare_operand");
  const bool is_quantized = scheme_name.is_none();
  const int scheme = is_quantized ? -1 : call.scheme(scheme_name);
  const nb::object array = is_quantized ? call.fields("x", x)[0] : nb::borrow(x);
  call.enter(is_quantized ? "x.codes" : "x", array);
  if (call.has_programs(stream)) {
    const nb::object number = is_quantized ? nb::none() : nb::object(nb::int_(scheme));
    const nb::object prepared =
        call.program(nb::make_tuple(number, form, options, keep_source), nb::make_tuple(x));
    if (!prepared.is_none()) return prepared;
  }
  const StreamScope scope(call, stream, array);
  return is_quantized ? prepare_quantized(call, x, form, keep_source, data)
                      : prepare_plain(call, x, scheme, *options, form, keep_source, data);
}

// One side of what prepare_both makes: codes and scales, or what is folded.
struct PreparedSide {
  PreparedOperand view;
  Extents extents;
  std::optional<Quantized> source;
  DenseOutput data, spreads;

  PreparedSide(Call& call, PreparedForm form, int scheme, const Extents& of, Device device)
      : extents(of) {
    view.form = form;
    if (form == PreparedForm::source) {
      source = call.made(scheme, 0, extents, device);
      view.source = source->view;
    } else {
      view.source = {.scheme = all_schemes[scheme], .shape = extents.shape(), .device = device};
      data = make_data(call, view, nb::none());
    }
    Extents rows = extents;
    --rows.dimensions;
    spreads = call.dense_output("spreads", nb::none(), rows, Element::uint8, device);
  }

  nb::object operand(const Call& call, nb::handle x) const {
    return made_of(call, view.form, source ? nb::none() : call.finished(data, x),
                   source ? call.result(*source, x) : nb::none(), view.source.scheme, extents);
  }
};

Values prepare_both(Calls& calls, nb::handle x, nb::handle scheme_name,
                    const QuantizeOptions& options, nb::handle stream) {
  Call call(calls, "prepare_both");
  const int scheme = call.scheme(scheme_name);
  call.enter("x", x);
  const StreamScope scope(call, stream, x);
  const Array array = call.look_plain("x", x);
  if (array.extents.dimensions < 2) call.fault("no_columns", array.extents.tuple());
  const Plain plain = call.plain(array);
  call.take(plain.array.span());
  const Device device = plain.view.device;
  const PreparedForm form =
      form_of(call, static_cast<int>(PreparedForm::folded), all_schemes[scheme], device);
  const PreparedSide rows(call, form, scheme, array.extents, device);
  const PreparedSide columns(call, form, scheme, transposed(array.extents), device);
  const BothSpreads spreads{static_cast<std::uint8_t*>(rows.spreads.data),
                            static_cast<std::uint8_t*>(columns.spreads.data)};
  nb::object memory;
  const Workspace workspace =
      workspace_of(call, prepare_both_workspace_bytes(rows.view, columns.view), device, memory);
  const Stream queue = call.stream(device);
  call.run(plain.view.shape.size(), [&] {
    mxkern::prepare_both(plain.view, rows.view, columns.view, spreads, options, workspace, queue);
  });
  return nb::make_tuple(rows.operand(call, x), columns.operand(call, x),
                        call.finished(rows.spreads, x), call.finished(columns.spreads, x));
}

}  // namespace

void bind_prepare_calls(nb::module_& module) {
  using namespace nb::literals;
  module.def(
      "prepare_operand", &prepare_operand, "calls"_a, "x"_a.none(), "scheme"_a.none(),
      "options"_a.none(), "form"_a, "keep_source"_a, "data"_a.none(), "stream"_a.none(),
      nb::sig("def prepare_operand(calls: Calls, x: object, scheme: object, options: "
              "QuantizeOptions | None, form: int, keep_source: bool, data: object, stream: object) "
              "-> "
              "mxkern.values.prepared_operand.PreparedOperand"));
  module.def("prepare_both", &prepare_both, "calls"_a, "x"_a.none(), "scheme"_a.none(), "options"_a,
             "stream"_a.none());
}

}  // namespace mxkern::bindings
