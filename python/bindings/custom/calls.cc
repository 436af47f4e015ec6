// bindings/custom/calls.cc: schemes and formats of the user's own, over arrays of any framework.
// mxkern/ops/custom_calls.py reads arguments, and calls these.
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>

#include <array>
#include <optional>

#include "calls.h"
#include "custom/arrays.h"
#include "custom/scheme.h"
#include "mxkern/custom.h"
#include "product_arguments.h"

namespace nb = nanobind;

namespace mxkern::bindings {
namespace {

// The arrays that a call gives: scales, block amaxes, amax, tensor scale; None where it does not.
using GivenArrays = std::array<nb::object, 4>;

// One of the arrays that a call gives: of a type, and of as many elements.
const void* given_array(Call& call, Name argument, nb::handle x, Element element,
                        const Extents& extents, Device device, std::vector<nb::object>& kept) {
  if (x.is_none()) return nullptr;
  Array array = call.look(argument, x);
  const bool is_bytes = size_of(element) == 1 && array.element == Element::uint8;
  if (array.element != element && !is_bytes) array = call.numbers(argument, x, element);
  std::int64_t got = 1, wanted = 1;
  for (int i = 0; i < array.extents.dimensions; ++i) got *= array.extents.items[i];
  for (int i = 0; i < extents.dimensions; ++i) wanted *= extents.items[i];
  if (got != wanted || array.extents.dimensions > extents.dimensions) {
    call.fault("custom_shape", argument, array.extents.tuple(), extents.tuple());
  }
  if (array.device != device) call.other_device(argument, array);
  call.take(array.span());
  if (!array.is_dense) call.make_dense(array);
  kept.push_back(array.object);
  return array.data;
}

void read_given(Call& call, const GivenArrays& given, const CustomScheme& scheme,
                const Extents& extents, Device device, AnyOptions& options,
                std::vector<nb::object>& kept) {
  const Extents blocks = scheme.scale_extents(extents, ScaleLayout::row_major);
  const Extents tensors = scheme.tensor_scale_extents(extents);
  options.scales = given_array(call, "scales", given[0], scheme.scales, blocks, device, kept);
  const auto floats = [&](const char* name, std::size_t i, const Extents& wanted) {
    return static_cast<const float*>(
        given_array(call, name, given[i], Element::float32, wanted, device, kept));
  };
  options.block_amaxes = floats("block_amax", 1, blocks);
  options.amax = floats("amax", 2, tensors);
  options.tensor_scale = floats("tensor_scale", 3, tensors);
  const bool is_found = options.amax == nullptr && options.tensor_scale == nullptr;
  const std::int64_t count =
      scheme.scheme.is_whole_tensor() ? 1 : scheme.scheme.tensor_scale_count(extents.shape());
  if (device.type == DeviceType::cpu || count == 0 || !is_found) return;
  void* data = nullptr;
  kept.push_back(call.make(Extents({count}), Element::float32, device, data));
  options.found_amax = static_cast<float*>(data);
}

// A new quantized tensor, or the parts of one that is given.
struct AnyQuantized {
  AnyBlockScaled view;
  nb::object parts[3];
};

AnyQuantized made_or_given(Call& call, nb::handle out, const CustomScheme& scheme,
                           ScaleLayout layout, const Extents& extents, Device device) {
  AnyQuantized made;
  made.view = {scheme.scheme, extents.shape(), layout, nullptr, nullptr, nullptr, device};
  const Extents shapes[3] = {scheme.code_extents(extents), scheme.scale_extents(extents, layout),
                             scheme.tensor_scale_extents(extents)};
  const Element elements[3] = {scheme.codes, scheme.scales, Element::float32};
  const char* const names[3] = {"codes", "scales", "tensor_scale"};
  const int count = scheme.scheme.has_tensor_scale() ? 3 : 2;
  made.parts[2] = nb::none();
  void* data[3] = {};
  const auto fields = out.is_none() ? std::nullopt : call.package().block_scaled.fields_of(out);
  if (!out.is_none() && !fields) call.fault("no_fields", "out", out);
  for (int i = 0; i < count; ++i) {
    if (fields) {
      const bool is_byte = size_of(elements[i]) == 1;
      data[i] = call.written(Name("out", names[i]), (*fields)[i], shapes[i],
                             {elements[i], is_byte ? Element::uint8 : elements[i]}, device, false)
                    .data;
    } else {
      made.parts[i] = call.make(shapes[i], elements[i], device, data[i]);
    }
  }
  made.view.codes = data[0];
  made.view.scales = data[1];
  made.view.tensor_scale = static_cast<float*>(data[2]);
  return made;
}

Any custom_quantize(Calls& calls, const std::string& function, nb::handle x,
                    const CustomScheme& scheme, AnyOptions options, int layout,
                    const GivenArrays& given, nb::handle out, nb::handle stream) {
  Call call(calls, function.c_str());
  call.enter("x", x);
  const StreamScope scope(call, stream, x);
  const Plain plain = call.plain("x", x);
  const Extents extents = plain.array.extents;
  const Device device = plain.view.device;
  call.take(plain.array.span());
  std::vector<nb::object> kept;
  read_given(call, given, scheme, extents, device, options, kept);
  const ScaleLayout own_layout = all_scale_layouts[layout];
  const AnyQuantized made = made_or_given(call, out, scheme, own_layout, extents, device);
  const Stream queue = call.stream(device);
  call.run(plain.view.shape.size(),
           [&] { mxkern::quantize(plain.view, made.view, options, queue); });
  if (!out.is_none()) {
    call.mark_parts_written(out);
    return nb::borrow(out);
  }
  return call.block_scaled(made.parts, scheme.name, extents, own_layout, x);
}

Any custom_fake_quantize(Calls& calls, const std::string& function, nb::handle x,
                         const CustomScheme& scheme, AnyOptions options, const GivenArrays& given,
                         nb::handle out, nb::handle stream) {
  Call call(calls, function.c_str());
  call.enter("x", x);
  const StreamScope scope(call, stream, x);
  const AnyPlain plain = any_plain(call, "x", x);
  const Device device = plain.view.device;
  std::vector<nb::object> kept;
  read_given(call, given, scheme, plain.array.extents, device, options, kept);
  if (!out.is(x) || !plain.memory.is(plain.array.object)) call.take(plain.array.span());
  const AnyOutput made = any_output(call, out, plain.array.extents, plain.array.element, device);
  const Stream queue = call.stream(device);
  call.run(plain.view.shape.size(),
           [&] { mxkern::fake_quantize(plain.view, scheme.scheme, made.view, options, queue); });
  return call.finished(made, x);
}

Any custom_round(Calls& calls, const std::string& function, nb::handle x, const AnyFormat& format,
                 const AnyOptions& options, nb::handle out, nb::handle stream) {
  Call call(calls, function.c_str());
  call.enter("x", x);
  const StreamScope scope(call, stream, x);
  const AnyPlain plain = any_plain(call, "x", x);
  const Device device = plain.view.device;
  if (!out.is(x) || !plain.memory.is(plain.array.object)) call.take(plain.array.span());
  const AnyOutput made = any_output(call, out, plain.array.extents, plain.array.element, device);
  const Stream queue = call.stream(device);
  call.run(plain.view.shape.size(),
           [&] { mxkern::round_to(plain.view, format, made.view, options, queue); });
  return call.finished(made, x);
}

// The view of a BlockScaled, whose parts have to fit.
struct AnyRead {
  AnyBlockScaled view;
  Extents extents;
  std::vector<nb::object> kept;
};

AnyRead read_quantized(Call& call, Name argument, nb::handle q, const CustomScheme& scheme) {
  const auto fields = call.fields(argument, q);
  AnyRead read;
  const int layout =
      call.one_of(argument.of("scale_layout"), fields[5], call.package().layout_names);
  read.extents = call.shape(argument, fields[4]);
  const Extents shapes[3] = {scheme.code_extents(read.extents),
                             scheme.scale_extents(read.extents, all_scale_layouts[layout]),
                             scheme.tensor_scale_extents(read.extents)};
  const Element elements[3] = {scheme.codes, scheme.scales, Element::float32};
  const char* const names[3] = {"codes", "scales", "tensor_scale"};
  void* data[3] = {};
  Device device;
  for (int i = 0; i < 3; ++i) {
    const nb::object& part = fields[i];
    const bool is_wanted = i < 2 || scheme.scheme.has_tensor_scale();
    if (part.is_none() != !is_wanted) {
      call.fault("custom_part", argument.of(names[i]), part, is_wanted, scheme.name);
    }
    if (!is_wanted) continue;
    Array array = call.look(argument.of(names[i]), part);
    const bool is_bytes = size_of(elements[i]) == 1 && array.element == Element::uint8;
    if (array.element != elements[i] && !is_bytes) {
      array = call.numbers(argument.of(names[i]), part, elements[i]);
    }
    if (!(array.extents == shapes[i])) {
      call.fault("custom_shape", argument.of(names[i]), array.extents.tuple(), shapes[i].tuple());
    }
    if (i == 0) device = array.device;
    if (array.device != device) call.other_device(argument.of(names[i]), array);
    call.take(array.span());
    if (!array.is_dense) call.make_dense(array);
    read.kept.push_back(array.object);
    data[i] = array.data;
  }
  read.view = {scheme.scheme,
               read.extents.shape(),
               all_scale_layouts[layout],
               data[0],
               data[1],
               static_cast<float*>(data[2]),
               device};
  return read;
}

// dtype: a position among DTYPES.
Any custom_dequantize(Calls& calls, const std::string& function, nb::handle q,
                      const CustomScheme& scheme, int dtype, nb::handle out, nb::handle stream) {
  Call call(calls, function.c_str());
  const nb::object codes = call.fields("q", q)[0];
  call.enter("q.codes", codes);
  const StreamScope scope(call, stream, codes);
  const AnyRead read = read_quantized(call, "q", q, scheme);
  auto element = static_cast<Element>(dtype);
  if (!out.is_none() && element == Element::float32) {
    const Array array = call.look("out", out);
    if (is_plain(array.element) || array.element == Element::float64) element = array.element;
  }
  const AnyOutput made = any_output(call, out, read.extents, element, read.view.device);
  const Stream queue = call.stream(read.view.device);
  call.run(read.view.shape.size(), [&] { mxkern::dequantize(read.view, made.view, queue); });
  return call.finished(made, codes);
}

// Checks the parts of a BlockScaled.
Values custom_view(Calls& calls, const std::string& function, const std::string& argument,
                   nb::handle q, const CustomScheme& scheme) {
  Call call(calls, function.c_str());
  const nb::object codes = call.fields(argument.c_str(), q)[0];
  call.enter(Name(argument.c_str(), "codes"), codes);
  const AnyRead read = read_quantized(call, argument.c_str(), q, scheme);
  return nb::make_tuple(read.extents.tuple(), read.kept[0], read.kept[1]);
}

// a and b: float32 arrays [..., M, K] and [..., N, K] or [N, K].
Any custom_gemm(Calls& calls, nb::handle a, nb::handle b, nb::handle dtype_name, nb::handle out,
                nb::handle alpha, nb::handle beta, nb::handle bias, nb::handle scales,
                nb::handle accumulate, const AnyOptions& options, nb::handle stream) {
  Call call(calls, "gemm");
  const int dtype = call.dtype(dtype_name);
  AnyProductOptions product;
  product.alpha = call.number("alpha", alpha);
  product.beta = call.beta(beta, out);
  call.enter("b", b);
  const StreamScope scope(call, stream, b);
  const Plain right = call.plain("b", b), left_side = call.plain("a", a);
  const Extents extents = product_extents(call, left_side.array.extents, right.array.extents);
  call.take(left_side.array.span());
  call.take(right.array.span());
  std::optional<Plain> offset;
  read_bias(call, bias, extents, offset, product);
  const Device device = right.view.device;
  Array own_scales[2];
  if (!scales.is_none()) {
    product.scale_block = nb::cast<std::int64_t>(scales[2]);
    product.a_scale_rows = nb::cast<std::int64_t>(scales[3]);
    product.b_scale_rows = nb::cast<std::int64_t>(scales[4]);
    for (int i = 0; i < 2; ++i) {
      const nb::object array = scales[i];
      own_scales[i] = call.numbers(i == 0 ? "a.scales" : "b.scales", array, Element::float32);
      if (!own_scales[i].is_dense) call.make_dense(own_scales[i]);
    }
    product.a_scales = static_cast<const float*>(own_scales[0].data);
    product.b_scales = static_cast<const float*>(own_scales[1].data);
  }
  const Output made = call.output(out, extents, device, dtype);
  const Stream queue = call.stream(device);
  call.run(made.view.shape.size(), [&] {
    if (accumulate.is_none()) {
      return mxkern::multiply_float32(left_side.view, right.view, made.view, product, queue);
    }
    mxkern::accumulate_products(left_side.view, right.view, made.view,
                                nb::cast<const AnyFormat&>(accumulate), options.rounding, product);
  });
  return call.finished(made, b);
}

// b is by a scheme whose values bfloat16 holds; a is an operand of any kind that gemm takes.
Any custom_gemm_in_bfloat16(Calls& calls, nb::handle a, nb::handle b, const CustomScheme& scheme,
                            nb::handle dtype_name, nb::handle out, nb::handle alpha,
                            nb::handle beta, nb::handle bias, nb::handle precision,
                            nb::handle stream) {
  Call call(calls, "gemm");
  const int dtype = call.dtype(dtype_name);
  GemmOptions options;
  options.alpha = call.number("alpha", alpha);
  options.beta = call.beta(beta, out);
  options.precision = call.precision(precision);
  call.enter_operand(b);
  const nb::object codes = nb::getattr(b, "codes");
  const StreamScope scope(call, stream, codes);
  const AnyRead right = read_quantized(call, "b", b, scheme);
  const auto left_side = call.left(a);
  const Extents extents = product_extents(call, left_side.extents, right.extents);
  take(call, left_side.spans);
  std::optional<Plain> offset;
  read_bias(call, bias, extents, offset, options);
  const Device device = right.view.device;
  const Output made = call.output(out, extents, device, dtype);
  const Stream queue = call.stream(device);
  std::size_t bytes = 0;
  call.run(0, [&] {
    bytes = custom_gemm_workspace_bytes(left_side.view, right.view, made.view, options);
  });
  run_with(call, made.view.shape.size() * right.view.shape.columns, bytes, device,
           [&](Workspace workspace) {
             mxkern::gemm(left_side.view, right.view, made.view, options, workspace, queue);
           });
  return call.finished(made, codes);
}

}  // namespace

void bind_custom_calls(nb::module_& module) {
  using namespace nb::literals;
  module
      .def("custom_quantize", &custom_quantize, "calls"_a, "function"_a, "x"_a.none(), "scheme"_a,
           "options"_a, "layout"_a, "given"_a, "out"_a.none(), "stream"_a.none())
      .def("custom_fake_quantize", &custom_fake_quantize, "calls"_a, "function"_a, "x"_a.none(),
           "scheme"_a, "options"_a, "given"_a, "out"_a.none(), "stream"_a.none())
      .def("custom_round", &custom_round, "calls"_a, "function"_a, "x"_a.none(), "format"_a,
           "options"_a, "out"_a.none(), "stream"_a.none())
      .def("custom_dequantize", &custom_dequantize, "calls"_a, "function"_a, "q"_a.none(),
           "scheme"_a, "dtype"_a, "out"_a.none(), "stream"_a.none())
      .def("custom_view", &custom_view, "calls"_a, "function"_a, "argument"_a, "q"_a.none(),
           "scheme"_a)
      .def("custom_gemm", &custom_gemm, "calls"_a, "a"_a.none(), "b"_a.none(), "dtype"_a.none(),
           "out"_a.none(), "alpha"_a.none(), "beta"_a.none(), "bias"_a.none(), "scales"_a.none(),
           "accumulate"_a.none(), "options"_a, "stream"_a.none())
      .def("custom_gemm_in_bfloat16", &custom_gemm_in_bfloat16, "calls"_a, "a"_a.none(),
           "b"_a.none(), "scheme"_a, "dtype"_a.none(), "out"_a.none(), "alpha"_a.none(),
           "beta"_a.none(), "bias"_a.none(), "precision"_a.none(), "stream"_a.none());
}

}  // namespace mxkern::bindings
