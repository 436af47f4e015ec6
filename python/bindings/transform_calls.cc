// bindings/transform_calls.cc: the random Hadamard transform, scales from one layout to the other,
// and views of arguments for what is planned or recorded.
#include "calls.h"
#include "views.h"

namespace nb = nanobind;

namespace mxkern::bindings {
namespace {

Any random_hadamard(Calls& calls, nb::handle x, int size, std::uint64_t sign_mask_low,
                    std::uint64_t sign_mask_high, bool inverse, nb::handle out, nb::handle stream) {
  Call call(calls, "random_hadamard");
  call.enter("x", x);
  if (call.has_programs(stream)) {
    const nb::object y = call.program(nb::make_tuple(size, sign_mask_low, sign_mask_high, inverse),
                                      nb::make_tuple(x), out);
    if (!y.is_none()) return y;
  }
  const StreamScope scope(call, stream, x);
  const Plain plain = call.plain("x", x);
  Extents extents = plain.array.extents;
  if (extents.last() % size != 0) call.fault("transform_groups", extents.last(), size);
  const Device device = plain.view.device;
  // In place is fine; a shifted overlap is not.
  if (!out.is(x) || !plain.memory.is(plain.array.object)) call.take(plain.array.span());
  const Output made = call.output(out, extents, static_cast<int>(plain.view.dtype), device);
  const Hadamard hadamard{size, {sign_mask_low, sign_mask_high}};
  const Stream queue = call.stream(device);
  call.run(plain.view.shape.size(),
           [&] { mxkern::random_hadamard(plain.view, made.view, hadamard, inverse, queue); });
  return call.finished(made, x);
}

// rows and blocks: of one matrix without padding; -1: scales are what has it, and are swizzled.
Any move_scales(Calls& calls, const char* function, nb::handle scales, std::int64_t rows,
                std::int64_t blocks, nb::handle out, nb::handle stream) {
  Call call(calls, function);
  const bool swizzles = rows < 0;
  if (call.package().block_scaled.made(scales)) call.fault("whole_tensor");
  call.enter("scales", scales);
  if (call.has_programs(stream)) {
    const nb::tuple fixed = swizzles ? nb::make_tuple() : nb::make_tuple(rows, blocks);
    const nb::object moved = call.program(fixed, nb::make_tuple(scales), out);
    if (!moved.is_none()) return moved;
  }
  const StreamScope scope(call, stream, scales);
  Array array = call.look("scales", scales);
  const auto known = [&] {
    if (array.element == Element::uint8) return true;
    for (const int element : call.package().scale_elements) {
      if (array.element == static_cast<Element>(element)) return true;
    }
    return false;
  };
  if (!known()) call.fault("scales_dtype", array.object, call.reader().adapter);
  if (array.extents.dimensions == 0) call.fault("scales_without_axes");
  Extents extents = array.extents;
  ScaleIndex index;
  index.layout = ScaleLayout::swizzled;
  if (swizzles) {
    rows = extents.dimensions > 1 ? extents.items[extents.dimensions - 2] : 1;
    blocks = extents.last();
    if (extents.dimensions > 1) --extents.dimensions;
  }
  index.rows = rows;
  index.blocks = blocks;
  if (swizzles) {
    extents.last() = index.size();
  } else {
    if (extents.last() != index.size()) {
      call.fault("swizzled_shape", extents.tuple(), index.size(), rows, blocks);
    }
    check(extents.dimensions < Extents::most, function, ": scales has too many dimensions");
    extents.last() = rows;
    ++extents.dimensions;
    extents.last() = blocks;
  }
  std::int64_t batch = 1;
  for (int i = 0; i < array.extents.dimensions - (swizzles ? 2 : 1); ++i) {
    batch *= array.extents.items[i];
  }
  const Device device = array.device;
  call.take(array.span());
  const DenseOutput made = call.dense_output("out", out, extents, array.element, device);
  if (!array.is_dense) call.make_dense(array);
  const Stream queue = call.stream(device);
  call.run(batch * rows * blocks, [&] {
    const auto* from = static_cast<const std::uint8_t*>(array.data);
    auto* const to = static_cast<std::uint8_t*>(made.data);
    swizzles ? mxkern::swizzle_scales(from, to, batch, rows, blocks, device, queue)
             : mxkern::unswizzle_scales(from, to, batch, rows, blocks, device, queue);
  });
  return call.finished(made, scales);
}

Values plain_view(Calls& calls, const char* function, const char* argument, nb::handle x) {
  Call call(calls, function);
  call.enter(argument, x);
  const Plain read = call.plain(argument, x);
  return nb::make_tuple(tuple_of(read.view), read.array.extents.tuple());
}

Values quantized_view(Calls& calls, const char* function, const char* argument, nb::handle q) {
  Call call(calls, function);
  const nb::object codes = call.fields(argument, q)[0];
  call.enter(Name(argument, "codes"), codes);
  const Quantized read = call.quantized(argument, q);
  return nb::make_tuple(tuple_of(read.view), read.extents.tuple(), read.memory[0], read.memory[1]);
}

}  // namespace

void bind_transform_calls(nb::module_& module) {
  using namespace nb::literals;
  module
      .def("random_hadamard", &random_hadamard, "calls"_a, "x"_a.none(), "size"_a,
           "sign_mask_low"_a, "sign_mask_high"_a, "inverse"_a, "out"_a.none(), "stream"_a.none())
      .def("move_scales", &move_scales, "calls"_a, "function"_a, "scales"_a.none(), "rows"_a,
           "blocks"_a, "out"_a.none(), "stream"_a.none())
      .def("plain_view", &plain_view, "calls"_a, "function"_a, "argument"_a, "x"_a.none())
      .def("quantized_view", &quantized_view, "calls"_a, "function"_a, "argument"_a, "q"_a.none());
}

}  // namespace mxkern::bindings
