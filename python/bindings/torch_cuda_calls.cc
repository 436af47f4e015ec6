// bindings/torch_cuda_calls.cc: the ordinary calls on dense PyTorch tensors of the current CUDA
// device, from arguments to results in one step: launching a kernel takes less time than Python
// takes to look at the arguments. Whatever is out of the ordinary gives None: the package then
// takes the long way, and it is there that errors are found and worded.
#include <nanobind/stl/vector.h>

#include <optional>
#include <utility>
#include <variant>

#include "bindings.h"
#include "torch_tensor.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mxkern::bindings {
namespace {

// A tensor of float32, float16 or bfloat16, or an operand of gemm, and what it is for the library.
template <class View>
struct Read {
  View view;
  Extents extents;
};

// The parts of a BlockScaled that is being made.
struct Made {
  BlockScaled view;
  nb::object codes, scales, tensor_scale, found_amax;
  nb::object shape;
};

class TorchCudaCalls {
 public:
  // See TorchTensors for empty and samples; current_device() and current_stream(device) are
  // PyTorch's. Dtypes are positions among the samples, in the order of all_dtypes and all_schemes;
  // names in that of all_schemes, all_scale_layouts and all_prepared_forms.
  TorchCudaCalls(nb::object tensor_type, nb::object empty, nb::object current_device,
                 nb::object current_stream, Objects samples, nb::object block_scaled,
                 nb::object prepared_operand, std::vector<int> plain_elements,
                 std::vector<int> code_elements, std::vector<int> scale_elements,
                 Objects scheme_names, Objects layout_names, Objects form_names)
      : tensors_(std::move(tensor_type), std::move(empty), std::move(current_device),
                 std::move(current_stream), samples),
        block_scaled_(std::move(block_scaled)),
        prepared_operand_(std::move(prepared_operand)),
        plain_elements_(std::move(plain_elements)),
        code_elements_(std::move(code_elements)),
        scale_elements_(std::move(scale_elements)),
        scheme_names_(std::move(scheme_names)),
        layout_names_(std::move(layout_names)),
        form_names_(std::move(form_names)),
        byte_element_(code_elements_[static_cast<std::size_t>(Scheme::mxfp4)]) {}

  nb::object quantize(nb::handle x, int scheme, int layout, const QuantizeOptions& options,
                      bool columns, nb::handle amax, nb::handle tensor_scale) const {
    return if_ordinary([&]() -> nb::object {
      const auto read = plain(x);
      if (!read || read->extents.dimensions < (columns ? 2 : 1)) return nb::none();
      QuantizeOptions wanted = options;
      if (!read_scalars(amax, tensor_scale, read->view.device, wanted)) return nb::none();
      const Made out = make(*read, scheme, layout, columns, wanted);
      const Stream stream = tensors_.current_stream(read->view.device.index);
      call(read->view.shape.size(), [&] {
        columns ? mxkern::quantize_columns(read->view, out.view, wanted, stream)
                : mxkern::quantize(read->view, out.view, wanted, stream);
      });
      return result(out);
    });
  }

  nb::object quantize_both(nb::handle x, int scheme, int layout, const QuantizeOptions& row_options,
                           const QuantizeOptions& column_options, nb::handle amax,
                           nb::handle tensor_scale) const {
    return if_ordinary([&]() -> nb::object {
      const auto read = plain(x);
      if (!read || read->extents.dimensions < 2) return nb::none();
      QuantizeOptions along_rows = row_options, along_columns = column_options;
      if (!read_scalars(amax, tensor_scale, read->view.device, along_rows)) return nb::none();
      along_columns.amax = along_rows.amax;
      along_columns.tensor_scale = along_rows.tensor_scale;
      const Made rows = make(*read, scheme, layout, false, along_rows);
      const Made columns = make(*read, scheme, layout, true, along_columns);
      const Stream stream = tensors_.current_stream(read->view.device.index);
      call(read->view.shape.size(), [&] {
        mxkern::quantize_both(read->view, rows.view, columns.view, along_rows, along_columns,
                              stream);
      });
      return nb::make_tuple(result(rows), result(columns));
    });
  }

  nb::object dequantize(nb::handle q, int dtype) const {
    return if_ordinary([&]() -> nb::object {
      const auto read = quantized(q);
      if (!read || !tensors_.may_be_current(read->view.device.index)) return nb::none();
      Buffer buffer = dense(dtype, read->extents, read->view.device);
      const nb::object out = tensors_.make(read->extents, plain_elements_[dtype],
                                           read->view.device.index, buffer.data);
      const Stream stream = tensors_.current_stream(read->view.device.index);
      call(read->view.shape.size(), [&] { mxkern::dequantize(read->view, buffer, stream); });
      return out;
    });
  }

  // Of matrices, and of rows and a matrix. out: None, or a dense tensor to write to.
  nb::object gemm(nb::handle a, nb::handle b, int dtype, float alpha, int precision,
                  nb::handle out) const {
    return if_ordinary([&]() -> nb::object {
      const auto left = left_operand(a);
      if (!left) return nb::none();
      const auto right = right_operand(b);
      if (!right || left->extents.dimensions != 2 || right->extents.dimensions != 2) {
        return nb::none();
      }
      const Device device = device_of(right->view);
      Extents extents = left->extents;
      extents.last() = right->extents.items[0];
      if (!tensors_.may_be_current(device.index)) return nb::none();
      nb::object result;
      Buffer buffer = dense(dtype, extents, device);
      if (out.is_none()) {
        result = tensors_.make(extents, plain_elements_[dtype], device.index, buffer.data);
      } else {
        const auto given = plain(out);
        if (!given || !(given->extents == extents)) return nb::none();
        result = nb::borrow(out);
        buffer = given->view;
      }
      GemmOptions options;
      options.alpha = alpha;
      options.precision = static_cast<GemmPrecision>(precision);
      Extents size;
      size.dimensions = 1;
      size.last() = static_cast<std::int64_t>(
          mxkern::gemm_workspace_bytes(left->view, right->view, buffer, options));
      nb::object memory;
      Workspace workspace;
      if (size.last() > 0) {
        workspace.bytes = static_cast<std::size_t>(size.last());
        memory = tensors_.make(size, byte_element_, device.index, workspace.data);
      }
      mxkern::gemm(left->view, right->view, buffer, options, workspace,
                   tensors_.current_stream(device.index));
      return result;
    });
  }

 private:
  // work(), or None where an argument is not what this way is for. What PyTorch raises, as when
  // memory is short, the long way meets again.
  template <class Work>
  static nb::object if_ordinary(Work&& work) {
    try {
      return work();
    } catch (const InvalidArgument&) {
      return nb::none();
    } catch (const nb::python_error&) {
      return nb::none();
    }
  }

  static Device device_of(const GemmRightOperand& operand) {
    return std::visit(
        [](const auto& right) {
          if constexpr (requires { right.source; })
            return right.source.device;
          else
            return right.device;
        },
        operand);
  }

  // Of a tensor that is not made yet.
  static Buffer dense(int dtype, const Extents& extents, Device device) {
    return Buffer::dense(static_cast<void*>(nullptr), all_dtypes[dtype], extents.shape(), device);
  }

  // A plain tensor where the results will be made.
  std::optional<Read<Buffer>> plain(nb::handle x) const {
    const auto tensor = tensors_.read(x);
    if (!tensor || tensor->extents.dimensions < 1 || tensors_.negated(x) ||
        !tensors_.may_be_current(tensor->device)) {
      return std::nullopt;
    }
    for (std::size_t i = 0; i < plain_elements_.size(); ++i) {
      if (tensor->element != plain_elements_[i]) continue;
      const Buffer view = Buffer::dense(tensor->data, all_dtypes[i], tensor->extents.shape(),
                                        {DeviceType::cuda, tensor->device});
      if (view.data == nullptr && view.shape.size() > 0) return std::nullopt;
      return Read<Buffer>{view, tensor->extents};
    }
    return std::nullopt;
  }

  // One of the arrays of a BlockScaled, of exactly these extents.
  template <class T>
  bool part(nb::handle x, int element, const Extents& extents, Device device, T*& memory) const {
    const auto tensor = tensors_.read(x);
    if (!tensor || tensor->element != element || tensor->device != device.index ||
        !(tensor->extents == extents)) {
      return false;
    }
    memory = static_cast<T*>(tensor->data);
    return true;
  }

  std::optional<Read<BlockScaled>> quantized(nb::handle q) const {
    if (q.type().ptr() != block_scaled_.ptr()) return std::nullopt;
    const auto item = [&q](int i) { return nb::handle(PyTuple_GetItem(q.ptr(), i)); };
    const int scheme = position_of_name(item(3), scheme_names_);
    const int layout = position_of_name(item(5), layout_names_);
    Read<BlockScaled> read;
    if (scheme < 0 || layout < 0 || !read_extents(item(4), read.extents)) return std::nullopt;
    BlockScaled& view = read.view;
    view.scheme = all_schemes[scheme];
    view.scale_layout = all_scale_layouts[layout];
    const auto codes = tensors_.read(item(0));
    // Extents that some tensor has multiply without overflow; others might not.
    if (!codes || codes->element != code_elements_[scheme] ||
        !(codes->extents == code_extents(view.scheme, read.extents))) {
      return std::nullopt;
    }
    view.codes = static_cast<std::uint8_t*>(codes->data);
    view.device = {DeviceType::cuda, codes->device};
    view.shape = read.extents.shape();
    if (!part(item(1), scale_elements_[scheme], scale_extents(view.scale_index(), read.extents),
              view.device, view.scales)) {
      return std::nullopt;
    }
    if (facts_of(view.scheme).has_tensor_scale) {
      if (!part(item(2), plain_elements_[0], Extents{}, view.device, view.tensor_scale)) {
        return std::nullopt;
      }
    } else if (!item(2).is_none()) {
      return std::nullopt;
    }
    return read;
  }

  std::optional<Read<PreparedOperand>> prepared(nb::handle p) const {
    const auto item = [&p](int i) { return nb::handle(PyTuple_GetItem(p.ptr(), i)); };
    const int form = position_of_name(item(0), form_names_);
    const auto source = quantized(item(2));
    if (form < 0 || !source || item(1).is_none()) return std::nullopt;
    Extents shape;
    if (position_of_name(item(3), scheme_names_) != static_cast<int>(source->view.scheme) ||
        !read_extents(item(4), shape) || !(shape == source->extents)) {
      return std::nullopt;
    }
    Read<PreparedOperand> read;
    read.extents = shape;
    read.view.form = static_cast<PreparedForm>(form);
    read.view.source = source->view;
    read.view.bytes = prepared_bytes(read.view.form, source->view.scheme, source->view.shape);
    Extents size;
    size.dimensions = 1;
    size.last() = static_cast<std::int64_t>(read.view.bytes);
    if (!part(item(1), byte_element_, size, source->view.device, read.view.data)) {
      return std::nullopt;
    }
    return read;
  }

  // As the variant of gemm's argument. None for what is not ordinary.
  std::optional<Read<GemmRightOperand>> right_operand(nb::handle b) const {
    if (b.type().ptr() == prepared_operand_.ptr()) {
      const auto read = prepared(b);
      if (!read) return std::nullopt;
      return Read<GemmRightOperand>{read->view, read->extents};
    }
    const auto read = quantized(b);
    if (!read) return std::nullopt;
    return Read<GemmRightOperand>{read->view, read->extents};
  }

  std::optional<Read<GemmOperand>> left_operand(nb::handle a) const {
    if (a.type().ptr() == prepared_operand_.ptr()) {
      const auto read = prepared(a);
      if (!read) return std::nullopt;
      return Read<GemmOperand>{read->view, read->extents};
    }
    if (a.type().ptr() == block_scaled_.ptr()) {
      const auto read = quantized(a);
      if (!read) return std::nullopt;
      return Read<GemmOperand>{read->view, read->extents};
    }
    const auto read = plain(a);
    if (!read) return std::nullopt;
    return Read<GemmOperand>{read->view, read->extents};
  }

  // amax or tensor_scale: None, or a float32 tensor of one element beside x.
  bool read_scalars(nb::handle amax, nb::handle tensor_scale, Device device,
                    QuantizeOptions& options) const {
    if (!amax.is_none() && !part(amax, plain_elements_[0], Extents{}, device, options.amax)) {
      return false;
    }
    return tensor_scale.is_none() ||
           part(tensor_scale, plain_elements_[0], Extents{}, device, options.tensor_scale);
  }

  Made make(const Read<Buffer>& x, int scheme, int layout, bool columns,
            QuantizeOptions& options) const {
    Extents extents = x.extents;
    if (columns) std::swap(extents.last(), extents.items[extents.dimensions - 2]);
    Made made;
    BlockScaled& view = made.view;
    view.scheme = all_schemes[scheme];
    view.scale_layout = all_scale_layouts[layout];
    view.shape = extents.shape();
    view.device = x.view.device;
    const int device = view.device.index;
    made.shape = extents.tuple();
    made.codes = tensors_.make(code_extents(view.scheme, extents), code_elements_[scheme], device,
                               view.codes);
    made.scales = tensors_.make(scale_extents(view.scale_index(), extents), scale_elements_[scheme],
                                device, view.scales);
    made.tensor_scale = nb::none();
    if (facts_of(view.scheme).has_tensor_scale) {
      made.tensor_scale = tensors_.make(Extents{}, plain_elements_[0], device, view.tensor_scale);
      if (options.amax == nullptr && options.tensor_scale == nullptr) {
        made.found_amax = tensors_.make(Extents{}, plain_elements_[0], device, options.found_amax);
      }
    }
    return made;
  }

  nb::object result(const Made& made) const {
    const auto scheme = static_cast<std::size_t>(made.view.scheme);
    const auto layout = static_cast<std::size_t>(made.view.scale_layout);
    return named_tuple(block_scaled_,
                       nb::make_tuple(made.codes, made.scales, made.tensor_scale,
                                      scheme_names_[scheme], made.shape, layout_names_[layout]));
  }

  TorchTensors tensors_;
  nb::object block_scaled_;
  nb::object prepared_operand_;
  std::vector<int> plain_elements_;
  std::vector<int> code_elements_;
  std::vector<int> scale_elements_;
  Objects scheme_names_;
  Objects layout_names_;
  Objects form_names_;
  int byte_element_;  // of packed codes: uint8
};

}  // namespace

void bind_torch_cuda_calls(nb::module_& module) {
  nb::class_<TorchCudaCalls>(module, "TorchCudaCalls")
      .def(nb::init<nb::object, nb::object, nb::object, nb::object, Objects, nb::object, nb::object,
                    std::vector<int>, std::vector<int>, std::vector<int>, Objects, Objects,
                    Objects>(),
           "tensor_type"_a, "empty"_a, "current_device"_a, "current_stream"_a, "samples"_a,
           "block_scaled"_a, "prepared_operand"_a, "plain_elements"_a, "code_elements"_a,
           "scale_elements"_a, "scheme_names"_a, "layout_names"_a, "form_names"_a)
      .def("quantize", &TorchCudaCalls::quantize, "x"_a.none(), "scheme"_a, "layout"_a, "options"_a,
           "columns"_a, "amax"_a.none(), "tensor_scale"_a.none())
      .def("quantize_both", &TorchCudaCalls::quantize_both, "x"_a.none(), "scheme"_a, "layout"_a,
           "row_options"_a, "column_options"_a, "amax"_a.none(), "tensor_scale"_a.none())
      .def("dequantize", &TorchCudaCalls::dequantize, "q"_a.none(), "dtype"_a)
      .def("gemm", &TorchCudaCalls::gemm, "a"_a.none(), "b"_a.none(), "dtype"_a, "alpha"_a,
           "precision"_a, "out"_a.none());
}

}  // namespace mxkern::bindings
