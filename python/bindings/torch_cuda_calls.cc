// bindings/torch_cuda_calls.cc: the ordinary calls on dense PyTorch tensors of the current CUDA
// device, from arguments to results in one step: launching a kernel takes less time than Python
// takes to look at the arguments. Whatever is out of the ordinary gives None: the package then
// takes the long way, and it is there that errors are found and worded.
#include <nanobind/stl/vector.h>

#include <optional>
#include <utility>
#include <variant>

#include "bindings.h"
#include "kept_plans.h"
#include "numbers.h"
#include "torch_operands.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mxkern::bindings {
namespace {

// The parts of a BlockScaled that is being made.
struct Made {
  BlockScaled view;
  nb::object codes, scales, tensor_scale, found_amax;
  nb::object shape;
};

class TorchCudaCalls {
 public:
  // See TorchTensors and TorchOperands.
  TorchCudaCalls(nb::object tensor_type, nb::object empty, nb::object current_device,
                 nb::object current_stream, Objects recorders, const Objects& samples,
                 nb::object block_scaled, nb::object prepared_operand,
                 std::vector<int> plain_elements, std::vector<int> code_elements,
                 std::vector<int> scale_elements, int end_element, Objects scheme_names,
                 Objects layout_names, Objects form_names)
      : operands_{{std::move(tensor_type), std::move(empty), std::move(current_device),
                   std::move(current_stream), std::move(recorders), samples},
                  std::move(block_scaled),
                  std::move(prepared_operand),
                  std::move(plain_elements),
                  std::move(code_elements),
                  std::move(scale_elements),
                  end_element,
                  std::move(scheme_names),
                  std::move(layout_names),
                  std::move(form_names)} {}

  nb::object quantize(nb::handle x, int scheme, int layout, const QuantizeOptions& options,
                      bool columns, nb::handle amax, nb::handle tensor_scale,
                      nb::handle out) const {
    return if_ordinary([&]() -> nb::object {
      const auto read = operands_.plain(x);
      if (!read || read->extents.dimensions < (columns ? 2 : 1)) return nb::none();
      QuantizeOptions wanted = options;
      if (!read_scalars(amax, tensor_scale, read->view.device, wanted)) return nb::none();
      const Extents extents = columns ? transposed(read->extents) : read->extents;
      const auto made = out.is_none() ? make(read->view.device, scheme, layout, extents, wanted)
                                      : given(out, read->view, scheme, layout, extents, wanted);
      if (!made) return nb::none();
      const Stream stream = operands_.tensors.current_stream(read->view.device.index);
      call(read->view.shape.size(), [&] {
        columns ? mxkern::quantize_columns(read->view, made->view, wanted, stream)
                : mxkern::quantize(read->view, made->view, wanted, stream);
      });
      return out.is_none() ? result(*made) : nb::borrow(out);
    });
  }

  nb::object quantize_both(nb::handle x, int scheme, int layout, const QuantizeOptions& row_options,
                           const QuantizeOptions& column_options, nb::handle amax,
                           nb::handle tensor_scale) const {
    return if_ordinary([&]() -> nb::object {
      const auto read = operands_.plain(x);
      if (!read || read->extents.dimensions < 2) return nb::none();
      QuantizeOptions along_rows = row_options, along_columns = column_options;
      if (!read_scalars(amax, tensor_scale, read->view.device, along_rows)) return nb::none();
      along_columns.amax = along_rows.amax;
      along_columns.tensor_scale = along_rows.tensor_scale;
      const Device device = read->view.device;
      const auto rows = make(device, scheme, layout, read->extents, along_rows);
      const auto columns = make(device, scheme, layout, transposed(read->extents), along_columns);
      const Stream stream = operands_.tensors.current_stream(device.index);
      call(read->view.shape.size(), [&] {
        mxkern::quantize_both(read->view, rows->view, columns->view, along_rows, along_columns,
                              stream);
      });
      return nb::make_tuple(result(*rows), result(*columns));
    });
  }

  // out: None, or a dense tensor to write to, which may be x.
  nb::object fake_quantize(nb::handle x, int scheme, const QuantizeOptions& options,
                           nb::handle amax, nb::handle tensor_scale, nb::handle out) const {
    if (options.four_over_six && options.block_shape == BlockShape::square) return nb::none();
    return if_ordinary([&]() -> nb::object {
      const auto read = operands_.plain(x);
      if (!read || read->extents.dimensions < 1) return nb::none();
      const Device device = read->view.device;
      QuantizeOptions wanted = options;
      if (!read_scalars(amax, tensor_scale, device, wanted)) return nb::none();
      const auto rounded = output(out, static_cast<int>(read->view.dtype), read->extents, device);
      if (!rounded) return nb::none();
      const Scheme to = all_schemes[scheme];
      const nb::object found = make_found_amax(to, device.index, wanted);
      const Stream stream = operands_.tensors.current_stream(device.index);
      call(read->view.shape.size(),
           [&] { mxkern::fake_quantize(read->view, to, rounded->view, wanted, stream); });
      return rounded->tensor;
    });
  }

  // out: None, or a dense tensor to write to.
  nb::object dequantize(nb::handle q, int dtype, nb::handle out) const {
    return if_ordinary([&]() -> nb::object {
      const auto read = operands_.quantized(q);
      if (!read) return nb::none();
      const BlockScaled& view = read->view;
      if (!operands_.tensors.is_current(view.device.index)) return nb::none();
      nb::object result = nb::borrow(out);
      Buffer buffer = dense(dtype, read->extents, view.device);
      if (out.is_none()) {
        result = operands_.tensors.make(read->extents, operands_.plain_elements[dtype],
                                        view.device.index, buffer.data);
      } else {
        const auto given = operands_.plain(out);
        if (!given || !(given->extents == read->extents)) return nb::none();
        buffer = given->view;
        if (!apart({span_of(buffer), codes_span(view), scales_span(view),
                    scalar_span(view.tensor_scale)})) {
          return nb::none();
        }
      }
      const Stream stream = operands_.tensors.current_stream(view.device.index);
      call(view.shape.size(), [&] { mxkern::dequantize(view, buffer, stream); });
      return result;
    });
  }

  // Of anything with one matrix. out: None, or a dense tensor to write to.
  nb::object gemm(nb::handle a, nb::handle b, int dtype, double alpha, double beta, nb::handle bias,
                  int precision, nb::handle out) const {
    if (out.is_none() && beta != 0.0f) return nb::none();
    return if_ordinary([&]() -> nb::object {
      const auto left = operands_.left_operand(a);
      if (!left) return nb::none();
      const auto right = operands_.right_operand(b);
      if (!right || right->extents.dimensions != 2) return nb::none();
      const Device device = device_of(right->view);
      Extents extents = left->extents;
      extents.last() = right->extents.items[0];
      if (!operands_.tensors.is_current(device.index)) return nb::none();
      const auto product = output(out, dtype, extents, device, left->view, right->view);
      if (!product) return nb::none();
      const Buffer& buffer = product->view;
      GemmOptions options = gemm_options(alpha, beta);
      options.precision = static_cast<GemmPrecision>(precision);
      std::optional<Read<Buffer>> offset;
      if (!bias.is_none()) {
        offset = operands_.plain(bias);
        if (!offset || offset->extents.dimensions != 1) return nb::none();
        options.bias = &offset->view;
      }
      const GemmPlan plan = plans_.plan(left->view, right->view, buffer, options);
      const WorkingMemory memory = working_memory(plan.workspace_bytes(), device);
      mxkern::gemm(plan, left->view, right->view, buffer, options, memory.view,
                   operands_.tensors.current_stream(device.index));
      return product->tensor;
    });
  }

  // Of a matrix, and a stack of them for the groups of its rows.
  nb::object grouped_gemm(nb::handle a, nb::handle b, nb::handle ends, nb::handle factors,
                          nb::handle bias, int dtype, double alpha, double beta, int precision,
                          nb::handle out) const {
    return if_ordinary([&]() -> nb::object {
      const auto left = operands_.left_operand(a);
      if (!left || left->extents.dimensions != 2) return nb::none();
      const auto right = operands_.right_operand(b);
      if (!right || right->extents.dimensions != 3) return nb::none();
      const Device device = device_of(right->view);
      if (!operands_.tensors.is_current(device.index)) return nb::none();
      Extents count;
      count.dimensions = 1;
      RowGroups groups;
      count.last() = groups.count = right->extents.items[0];
      GroupedGemmOptions options;
      options.alpha = nearest_float(alpha);
      options.beta = nearest_float(beta);
      options.precision = static_cast<GemmPrecision>(precision);
      if (!operands_.part(ends, operands_.end_element, count, device, groups.ends) ||
          (!factors.is_none() &&
           !operands_.part(factors, operands_.plain_elements[0], count, device, options.factors))) {
        return nb::none();
      }
      Extents extents = left->extents;
      extents.last() = right->extents.items[1];
      Buffer biases;
      if (!bias.is_none()) {
        const auto read = operands_.plain(bias);
        if (!read || read->extents.dimensions != 2) return nb::none();
        biases = Buffer::dense(read->view.data, read->view.dtype,
                               {read->extents.items[0], 1, read->extents.items[1]}, device);
        options.bias = &biases;
      }
      const auto product = output(out, dtype, extents, device, left->view, right->view);
      if (!product) return nb::none();
      const WorkingMemory memory =
          working_memory(mxkern::grouped_gemm_workspace_bytes(left->view, right->view, groups,
                                                              product->view, options),
                         device);
      mxkern::grouped_gemm(left->view, right->view, groups, product->view, options, memory.view,
                           operands_.tensors.current_stream(device.index));
      return product->tensor;
    });
  }

 private:
  // work(), or None where an argument is not what this way is for. What PyTorch raises, as when
  // memory is short, the long way meets again.
  template <class Work>
  nb::object if_ordinary(Work&& work) const {
    try {
      if (operands_.tensors.are_recorded()) return nb::none();
      return work();
    } catch (const InvalidArgument&) {
      return nb::none();
    } catch (const nb::python_error&) {
      return nb::none();
    }
  }

  // What a plain result is written to.
  struct Output {
    nb::object tensor;
    Buffer view;
  };

  // A new one, or out, where that is ordinary. The library looks at what it overlaps.
  std::optional<Output> output(nb::handle out, int dtype, const Extents& extents,
                               Device device) const {
    if (out.is_none()) {
      Output made{{}, dense(dtype, extents, device)};
      made.tensor = operands_.tensors.make(extents, operands_.plain_elements[dtype], device.index,
                                           made.view.data);
      return made;
    }
    const auto given = operands_.plain(out);
    if (!given || !(given->extents == extents)) return std::nullopt;
    return Output{nb::borrow(out), given->view};
  }

  // The same of a product, where the library does not look at tensor scales.
  std::optional<Output> output(nb::handle out, int dtype, const Extents& extents, Device device,
                               const GemmOperand& left, const GemmRightOperand& right) const {
    auto made = output(out, dtype, extents, device);
    if (made && !out.is_none() &&
        (!apart({span_of(made->view), scalar_span(tensor_scale_of(left))}) ||
         !apart({span_of(made->view), scalar_span(tensor_scale_of(right))}))) {
      return std::nullopt;
    }
    return made;
  }

  struct WorkingMemory {
    nb::object tensor;
    Workspace view;
  };

  WorkingMemory working_memory(std::size_t bytes, Device device) const {
    WorkingMemory memory;
    if (bytes == 0) return memory;
    Extents size;
    size.dimensions = 1;
    size.last() = static_cast<std::int64_t>(bytes);
    memory.view.bytes = bytes;
    memory.tensor =
        operands_.tensors.make(size, operands_.byte_element(), device.index, memory.view.data);
    return memory;
  }

  // Of a tensor that is not made yet.
  static Buffer dense(int dtype, const Extents& extents, Device device) {
    return Buffer::dense(static_cast<void*>(nullptr), all_dtypes[dtype], extents.shape(), device);
  }

  // amax or tensor_scale: None, or a float32 tensor of one element beside x.
  bool read_scalars(nb::handle amax, nb::handle tensor_scale, Device device,
                    QuantizeOptions& options) const {
    if (!amax.is_none() &&
        !operands_.part(amax, operands_.plain_elements[0], Extents{}, device, options.amax)) {
      return false;
    }
    return tensor_scale.is_none() || operands_.part(tensor_scale, operands_.plain_elements[0],
                                                    Extents{}, device, options.tensor_scale);
  }

  std::optional<Made> make(Device place, int scheme, int layout, const Extents& extents,
                           QuantizeOptions& options) const {
    Made made;
    BlockScaled& view = made.view;
    view.scheme = all_schemes[scheme];
    view.scale_layout = all_scale_layouts[layout];
    view.shape = extents.shape();
    view.device = place;
    const int device = place.index;
    made.shape = extents.tuple();
    made.codes = operands_.tensors.make(code_extents(view.scheme, extents),
                                        operands_.code_elements[scheme], device, view.codes);
    made.scales = operands_.tensors.make(scale_extents(view.scale_index(), extents),
                                         operands_.scale_elements[scheme], device, view.scales);
    made.tensor_scale = nb::none();
    if (facts_of(view.scheme).has_tensor_scale) {
      made.tensor_scale =
          operands_.tensors.make(Extents{}, operands_.plain_elements[0], device, view.tensor_scale);
    }
    made.found_amax = make_found_amax(view.scheme, device, options);
    return made;
  }

  // NVFP4 keeps the amax that it finds from one kernel to the next.
  nb::object make_found_amax(Scheme scheme, int device, QuantizeOptions& options) const {
    const bool is_given = options.amax != nullptr || options.tensor_scale != nullptr;
    if (!facts_of(scheme).has_tensor_scale || is_given) return {};
    return operands_.tensors.make(Extents{}, operands_.plain_elements[0], device,
                                  options.found_amax);
  }

  // A BlockScaled of the caller's that fits, and has memory of its own.
  std::optional<Made> given(nb::handle out, const Buffer& x, int scheme, int layout,
                            const Extents& extents, QuantizeOptions& options) const {
    const auto read = operands_.quantized(out);
    if (!read) return std::nullopt;
    const BlockScaled& view = read->view;
    if (view.scheme != all_schemes[scheme] || view.scale_layout != all_scale_layouts[layout] ||
        !(read->extents == extents) || view.device.index != x.device.index ||
        !apart({span_of(x), codes_span(view), scales_span(view), scalar_span(view.tensor_scale),
                scalar_span(options.amax), scalar_span(options.tensor_scale)})) {
      return std::nullopt;
    }
    Made made;
    made.view = view;
    made.found_amax = make_found_amax(view.scheme, x.device.index, options);
    return made;
  }

  nb::object result(const Made& made) const {
    const auto scheme = static_cast<std::size_t>(made.view.scheme);
    const auto layout = static_cast<std::size_t>(made.view.scale_layout);
    return named_tuple(
        operands_.block_scaled,
        nb::make_tuple(made.codes, made.scales, made.tensor_scale, operands_.scheme_names[scheme],
                       made.shape, operands_.layout_names[layout]));
  }

  TorchOperands operands_;
  mutable KeptPlans plans_;  // the interpreter lock is held
};

}  // namespace

void bind_torch_cuda_calls(nb::module_& module) {
  nb::class_<TorchCudaCalls>(module, "TorchCudaCalls")
      .def(nb::init<nb::object, nb::object, nb::object, nb::object, Objects, Objects, nb::object,
                    nb::object, std::vector<int>, std::vector<int>, std::vector<int>, int, Objects,
                    Objects, Objects>(),
           "tensor_type"_a, "empty"_a, "current_device"_a.none(), "current_stream"_a, "recorders"_a,
           "samples"_a, "block_scaled"_a, "prepared_operand"_a, "plain_elements"_a,
           "code_elements"_a, "scale_elements"_a, "end_element"_a, "scheme_names"_a,
           "layout_names"_a, "form_names"_a)
      .def("quantize", &TorchCudaCalls::quantize, "x"_a.none(), "scheme"_a, "layout"_a, "options"_a,
           "columns"_a, "amax"_a.none(), "tensor_scale"_a.none(), "out"_a.none())
      .def("quantize_both", &TorchCudaCalls::quantize_both, "x"_a.none(), "scheme"_a, "layout"_a,
           "row_options"_a, "column_options"_a, "amax"_a.none(), "tensor_scale"_a.none())
      .def("fake_quantize", &TorchCudaCalls::fake_quantize, "x"_a.none(), "scheme"_a, "options"_a,
           "amax"_a.none(), "tensor_scale"_a.none(), "out"_a.none())
      .def("dequantize", &TorchCudaCalls::dequantize, "q"_a.none(), "dtype"_a, "out"_a.none())
      .def("gemm", &TorchCudaCalls::gemm, "a"_a.none(), "b"_a.none(), "dtype"_a, "alpha"_a,
           "beta"_a, "bias"_a.none(), "precision"_a, "out"_a.none())
      .def("grouped_gemm", &TorchCudaCalls::grouped_gemm, "a"_a.none(), "b"_a.none(),
           "ends"_a.none(), "factors"_a.none(), "bias"_a.none(), "dtype"_a, "alpha"_a, "beta"_a,
           "precision"_a, "out"_a.none());
}

}  // namespace mxkern::bindings
