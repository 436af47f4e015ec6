// bindings/operand_calls.cc: quantized tensors and operands of products as arguments, and quantized
// results.
#include <string>

#include "calls.h"

namespace nb = nanobind;

namespace mxkern::bindings {
namespace {

// Positions of fields.
enum { codes_field, scales_field, tensor_scale_field, scheme_field, shape_field, layout_field };
enum { form_field, data_field, source_field, prepared_scheme_field, prepared_shape_field };

// A prepared operand, or its source where that is all it holds.
template <class View>
Operand<View> as_operand(const Operand<PreparedOperand>& read) {
  if (read.view.form == PreparedForm::source) {
    return {read.view.source, read.extents, read.memory, read.spans};
  }
  return {read.view, read.extents, read.memory, read.spans};
}

}  // namespace

Array Call::part(Name argument, nb::handle x, Element element, const Extents& extents,
                 const char* name, const Quantized& q, int scheme) {
  // Packed codes have no dtype of their own.
  const bool may_be_e2m1 = *name == 'c' && element == Element::uint8;
  const bool is_e2m1 = may_be_e2m1 && std::string_view(facts_of(q.view.scheme).format) == "e2m1";
  Array array = look(argument, x, is_e2m1);
  if (array.element != element && array.element != Element::uint8) {
    fault("part_dtype", argument, name, array.object, reader_->adapter, scheme);
  }
  if (!(array.extents == extents)) {
    fault("part_shape", argument, name, array.extents.tuple(), scheme, q.extents.tuple(),
          package().layout_names[static_cast<std::size_t>(q.view.scale_layout)]);
  }
  return array;
}

BlockScaledClass::Fields Call::fields(Name argument, nb::handle q) const {
  auto fields = package().block_scaled.fields_of(q);
  if (!fields) fault("no_fields", argument, q);
  return std::move(*fields);
}

Extents Call::shape(Name argument, nb::handle given) const {
  Extents read;
  if (!read_extents(given, read)) {
    check(read_extents(fault("shape", argument, given), read), function, ": ",
          argument.of("shape").text(), " has more dimensions than 64");
  }
  return read;
}

Quantized Call::quantized(Name argument, nb::handle q) {
  const auto fields = this->fields(argument, q);
  Quantized read;
  int scheme = position_of_name(fields[scheme_field], package().scheme_names);
  if (scheme < 0) scheme = this->scheme(fields[scheme_field]);
  const int layout =
      one_of(argument.of("scale_layout"), fields[layout_field], package().layout_names);
  read.extents = shape(argument, fields[shape_field]);
  BlockScaled& view = read.view;
  view.scheme = all_schemes[scheme];
  view.scale_layout = all_scale_layouts[layout];
  const auto index = static_cast<std::size_t>(scheme);
  // Extents that some array has multiply without overflow; others might not.
  Array codes = part(argument.of("codes"), fields[codes_field],
                     static_cast<Element>(package().code_elements[index]),
                     code_extents(view.scheme, read.extents), "codes", read, scheme);
  view.shape = read.extents.shape();
  view.device = codes.device;
  Array scales = part(argument.of("scales"), fields[scales_field],
                      static_cast<Element>(package().scale_elements[index]),
                      scale_extents(view.scale_index(), read.extents), "scales", read, scheme);
  read.spans = {codes.span(), scales.span()};
  if (facts_of(view.scheme).has_tensor_scale) {
    Span span;
    view.tensor_scale = const_cast<float*>(
        scalar(argument.of("tensor_scale"), fields[tensor_scale_field], codes.device, false, span));
    read.spans.push_back(span);
  } else if (!fields[tensor_scale_field].is_none()) {
    fault("no_tensor_scale", argument.of("tensor_scale"), scheme);
  }
  if (scales.device != codes.device) {
    other_device(argument.of("scales"), scales);
  }
  if (!codes.is_dense) make_dense(codes);
  if (!scales.is_dense) make_dense(scales);
  view.codes = static_cast<std::uint8_t*>(codes.data);
  view.scales = static_cast<std::uint8_t*>(scales.data);
  read.memory[0] = codes.object;
  read.memory[1] = scales.object;
  return read;
}

Operand<PreparedOperand> Call::prepared(Name argument, nb::handle p) {
  const auto fields = package().prepared_operand.fields_of(p);
  if (!fields) fault("no_prepared_operand", argument, p);
  Operand<PreparedOperand> read;
  PreparedOperand& view = read.view;
  const int form = one_of(argument.of("form"), (*fields)[form_field], package().form_names);
  const int scheme = this->scheme((*fields)[prepared_scheme_field]);
  view.form = all_prepared_forms[form];
  read.extents = this->shape(argument, (*fields)[prepared_shape_field]);
  const std::string source_name = argument.of("source").text();
  const bool has_source = !(*fields)[source_field].is_none();
  if (has_source) {
    const Quantized source = quantized(source_name.c_str(), (*fields)[source_field]);
    if (source.view.scheme != all_schemes[scheme] || !(source.extents == read.extents)) {
      fault("other_source", argument, scheme, read.extents.tuple(),
            static_cast<int>(source.view.scheme), source.extents.tuple());
    }
    view.source = source.view;
    read.memory = {source.memory[0], source.memory[1]};
    read.spans = source.spans;
  }
  if (view.form == PreparedForm::source) {
    if (!has_source) fault("no_source", argument);
    return read;
  }
  if ((*fields)[data_field].is_none()) fault("no_data", argument, (*fields)[form_field]);
  const Name data_name = argument.of("data");
  Array data = look(data_name, (*fields)[data_field]);
  if (data.element != Element::uint8 || !data.is_dense) {
    fault("data_dtype", data_name, data.object, reader_->adapter);
  }
  const Shape shape = read.extents.shape();
  view.bytes = prepared_bytes(view.form, all_schemes[scheme], shape);
  const Extents size({static_cast<std::int64_t>(view.bytes)});
  if (!(data.extents == size)) fault("data_shape", data_name, data.extents.tuple(), size.tuple());
  if (has_source) {
    if (data.device != view.source.device) {
      other_device(data_name, data);
    }
  } else {
    if (facts_of(all_schemes[scheme]).has_tensor_scale)
      fault("no_tensor_scale_kept", argument, scheme);
    view.source = {.scheme = all_schemes[scheme], .shape = shape, .device = data.device};
  }
  view.data = data.data;
  read.memory.push_back(data.object);
  read.spans.push_back(data.span());
  return read;
}

void Call::enter_operand(nb::handle b, Name argument) {
  if (package().prepared_operand.made(b)) {
    const auto fields = package().prepared_operand.fields_of(b);
    if (!fields) fault("no_prepared_operand", argument, b);
    const auto source = package().block_scaled.fields_of((*fields)[source_field]);
    if (source) return enter(argument.of("source.codes"), (*source)[codes_field]);
    if (!(*fields)[data_field].is_none()) return enter(argument.of("data"), (*fields)[data_field]);
    fault("no_array", argument, b);
  }
  const auto fields = package().block_scaled.fields_of(b);
  if (!fields) fault("no_right_operand", argument, b);
  enter(argument.of("codes"), (*fields)[codes_field]);
}

Operand<GemmRightOperand> Call::right(nb::handle b, Name argument) {
  if (package().prepared_operand.made(b)) {
    return as_operand<GemmRightOperand>(prepared(argument, b));
  }
  const Quantized read = quantized(argument, b);
  return {read.view, read.extents, {read.memory[0], read.memory[1]}, read.spans};
}

Operand<GemmOperand> Call::left(nb::handle a, Name argument) {
  if (package().prepared_operand.made(a)) {
    return as_operand<GemmOperand>(prepared(argument, a));
  }
  if (package().block_scaled.is_instance(a)) {
    const nb::object codes = fields(argument, a)[codes_field];
    if (calls_.of_type(codes) != reader_) fault("operands_apart", codes, reader_->adapter);
    const Quantized read = quantized(argument, a);
    return {read.view, read.extents, {read.memory[0], read.memory[1]}, read.spans};
  }
  const Plain read = plain(argument, a);
  return {read.view, read.array.extents, {read.memory}, {read.array.span()}};
}

Quantized Call::made(int scheme, int layout, const Extents& extents, Device device) {
  Quantized made;
  BlockScaled& view = made.view;
  made.extents = extents;
  view = {.scheme = all_schemes[scheme],
          .shape = extents.shape(),
          .scale_layout = all_scale_layouts[layout],
          .device = device};
  const auto index = static_cast<std::size_t>(scheme);
  void *codes = nullptr, *scales = nullptr, *tensor_scale = nullptr;
  made.parts[0] = make(code_extents(view.scheme, extents),
                       static_cast<Element>(package().code_elements[index]), device, codes);
  made.parts[1] = make(scale_extents(view.scale_index(), extents),
                       static_cast<Element>(package().scale_elements[index]), device, scales);
  made.parts[2] = nb::none();
  if (facts_of(view.scheme).has_tensor_scale) {
    made.parts[2] = make(Extents{}, Element::float32, device, tensor_scale);
  }
  view.codes = static_cast<std::uint8_t*>(codes);
  view.scales = static_cast<std::uint8_t*>(scales);
  view.tensor_scale = static_cast<float*>(tensor_scale);
  return made;
}

Quantized Call::given(Name argument, nb::handle out, int scheme, int layout, const Extents& extents,
                      Device device) {
  const auto fields = package().block_scaled.fields_of(out);
  const auto index = static_cast<std::size_t>(scheme);
  const auto& layout_name = package().layout_names[static_cast<std::size_t>(layout)];
  Quantized made;
  const bool is_alike =
      fields.has_value() &&
      position_of_name((*fields)[scheme_field], package().scheme_names) == scheme &&
      position_of_name((*fields)[layout_field], package().layout_names) == layout &&
      read_extents((*fields)[shape_field], made.extents) && made.extents == extents &&
      (*fields)[tensor_scale_field].is_none() != facts_of(all_schemes[scheme]).has_tensor_scale;
  if (!is_alike) fault("out_fields", argument, out, scheme, extents.tuple(), layout_name);
  BlockScaled& view = made.view;
  made.extents = extents;
  view = {.scheme = all_schemes[scheme],
          .shape = extents.shape(),
          .scale_layout = all_scale_layouts[layout],
          .device = device};
  const Array codes = written(
      argument.of("codes"), (*fields)[codes_field], code_extents(view.scheme, extents),
      {static_cast<Element>(package().code_elements[index]), Element::uint8}, device, false);
  const Array scales = written(
      argument.of("scales"), (*fields)[scales_field], scale_extents(view.scale_index(), extents),
      {static_cast<Element>(package().scale_elements[index]), Element::uint8}, device, false);
  view.codes = static_cast<std::uint8_t*>(codes.data);
  view.scales = static_cast<std::uint8_t*>(scales.data);
  made.memory[0] = codes.object;
  made.memory[1] = scales.object;
  if (facts_of(view.scheme).has_tensor_scale) {
    view.tensor_scale =
        static_cast<float*>(written(argument.of("tensor_scale"), (*fields)[tensor_scale_field],
                                    Extents{}, {Element::float32}, device, false)
                                .data);
  }
  return made;
}

nb::object Call::result(const Quantized& made, nb::handle x) const {
  const auto scheme = static_cast<std::size_t>(made.view.scheme);
  return block_scaled(made.parts, package().scheme_names[scheme], made.extents,
                      made.view.scale_layout, x);
}

nb::object Call::block_scaled(const nb::object (&parts)[3], nb::handle scheme,
                              const Extents& extents, ScaleLayout layout, nb::handle x) const {
  nb::object left[3];
  for (int i = 0; i < 3; ++i) left[i] = parts[i].is_none() ? parts[i] : leave(parts[i], x);
  return package().block_scaled.make(left[0], left[1], left[2], scheme, extents.tuple(),
                                     package().layout_names[static_cast<std::size_t>(layout)]);
}

void Call::mark_parts_written(nb::handle q) const {
  if (!reader_->marks_written) return;
  const auto fields = package().block_scaled.fields_of(q);
  for (int i = 0; fields && i < 3; ++i) mark_written((*fields)[i]);
}

}  // namespace mxkern::bindings
