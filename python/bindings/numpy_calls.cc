// bindings/numpy_calls.cc: the ordinary calls on NumPy arrays, from arguments to results in one
// step. A small tensor is quantized in less time than Python takes to look at its shape, so what
// the Python package does for every framework is done here once more for dense NumPy arrays.
// Whatever is out of the ordinary gives None: the package then takes the long way, and it is there
// that errors are found and worded.
#include <nanobind/stl/vector.h>

#include <optional>
#include <utility>
#include <vector>

#include "bindings.h"
#include "block_scaled_object.h"
#include "gemm_workspace.h"
#include "numbers.h"
#include "numpy_array.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mxkern::bindings {
namespace {

// A BlockScaled of NumPy arrays while a call looks at it.
struct Read {
  BlockScaled view;
  Extents extents;
  std::vector<NumpyArray> parts;
};

// A plain array, which its capsule keeps alive.
struct Plain {
  Buffer view;
  Extents extents;
  NumpyArray array;
};

// The parts of a BlockScaled that is being made.
struct Made {
  BlockScaled view;
  nb::object codes, scales, tensor_scale;
  nb::object shape;
};

class NumpyCalls {
 public:
  // plain_dtypes in the order of all_dtypes; code_dtypes, scale_dtypes and scheme_names of
  // all_schemes; layout_names of all_scale_layouts.
  NumpyCalls(nb::object array_type, nb::object empty, nb::object block_scaled, Objects plain_dtypes,
             Objects code_dtypes, Objects scale_dtypes, Objects scheme_names, Objects layout_names)
      : array_type_(std::move(array_type)),
        empty_(std::move(empty)),
        block_scaled_(std::move(block_scaled)),
        plain_dtypes_(std::move(plain_dtypes)),
        code_dtypes_(std::move(code_dtypes)),
        scale_dtypes_(std::move(scale_dtypes)),
        scheme_names_(std::move(scheme_names)),
        layout_names_(std::move(layout_names)),
        array_struct_(nb::str("__array_struct__")),
        dtype_(nb::str("dtype")),
        no_extents_(nb::make_tuple()) {}

  // amax and tensor_scale: None, or one of them a float. out: None, or a BlockScaled.
  nb::object quantize(nb::handle x, int scheme, int layout, const QuantizeOptions& options,
                      bool columns, nb::handle amax, nb::handle tensor_scale,
                      nb::handle out) const {
    const std::optional<Plain> read = plain(x, columns ? 2 : 1);
    if (!read) return nb::none();
    QuantizeOptions chosen = options;
    float scalar = 0.0f;
    if (!read_scalar(amax, tensor_scale, scalar, chosen)) return nb::none();
    const Extents extents = columns ? transposed(read->extents) : read->extents;
    const std::optional<Made> made = out.is_none()
                                         ? make(extents, scheme, layout)
                                         : given(out, read->view, extents, scheme, layout);
    if (!made) return nb::none();
    try {
      call(read->view.shape.size(), [&] {
        columns ? mxkern::quantize_columns(read->view, made->view, chosen)
                : mxkern::quantize(read->view, made->view, chosen);
      });
    } catch (const InvalidArgument&) {
      return nb::none();
    }
    return out.is_none() ? result(*made) : nb::borrow(out);
  }

  // out: None, or an array to write to, which may be x.
  nb::object fake_quantize(nb::handle x, int scheme, const QuantizeOptions& options,
                           nb::handle amax, nb::handle tensor_scale, nb::handle out) const {
    const std::optional<Plain> read = plain(x, 1);
    if (!read) return nb::none();
    QuantizeOptions chosen = options;
    float scalar = 0.0f;
    if (!read_scalar(amax, tensor_scale, scalar, chosen)) return nb::none();
    const int dtype = static_cast<int>(read->view.dtype);
    const nb::object made = out.is_none()
                                ? call_with(empty_, read->extents.tuple(), plain_dtypes_[dtype])
                                : nb::borrow(out);
    const std::optional<Plain> target = plain(made, 1);
    if (!target || !(target->extents == read->extents) || !target->array.writable()) {
      return nb::none();
    }
    try {
      call(read->view.shape.size(),
           [&] { mxkern::fake_quantize(read->view, all_schemes[scheme], target->view, chosen); });
    } catch (const InvalidArgument&) {
      return nb::none();
    }
    return made;
  }

  // With an amax or a tensor scale this call is not ordinary.
  nb::object quantize_both(nb::handle x, int scheme, int layout, const QuantizeOptions& row_options,
                           const QuantizeOptions& column_options, nb::handle amax,
                           nb::handle tensor_scale) const {
    const std::optional<Plain> read = plain(x, 2);
    if (!read || !amax.is_none() || !tensor_scale.is_none()) return nb::none();
    const auto rows = make(read->extents, scheme, layout);
    const auto columns = make(transposed(read->extents), scheme, layout);
    try {
      call(read->view.shape.size(), [&] {
        mxkern::quantize_both(read->view, rows->view, columns->view, row_options, column_options);
      });
    } catch (const InvalidArgument&) {
      return nb::none();
    }
    return nb::make_tuple(result(*rows), result(*columns));
  }

  // out: None, or an array to write to.
  nb::object dequantize(nb::handle q, int dtype, nb::handle out) const {
    const std::optional<Read> read = this->read(q);
    if (!read) return nb::none();
    const BlockScaled& view = read->view;
    std::optional<Plain> target;
    nb::object made = nb::borrow(out);
    if (out.is_none()) {
      made = call_with(empty_, read->extents.tuple(), plain_dtypes_[dtype]);
      target = plain(made, 1);
    } else {
      target = plain(out, 1);
      if (!target || !(target->extents == read->extents) || !target->array.writable() ||
          !apart_from(target->view, view)) {
        return nb::none();
      }
    }
    call(view.shape.size(), [&] { mxkern::dequantize(view, target->view); });
    return made;
  }

  // Of two matrices, of which a may be plain. out: None, or an array to write to; beta is 0 where
  // there is none.
  nb::object gemm(nb::handle a, nb::handle b, int dtype, double alpha, double beta, nb::handle bias,
                  int precision, nb::handle given_out) const {
    if (precision != 0) return nb::none();
    const std::optional<Plain> x = plain(a, 2);
    const std::optional<Read> q = x ? std::nullopt : read(a);
    const std::optional<Read> right = read(b);
    if ((!x && !q) || !right) return nb::none();
    Extents extents = x ? x->extents : q->extents;
    if (extents.dimensions != 2 || right->extents.dimensions != 2 ||
        extents.items[1] != right->view.shape.columns) {
      return nb::none();
    }
    extents.last() = right->view.shape.rows;
    nb::object out = nb::borrow(given_out);
    if (out.is_none()) out = call_with(empty_, extents.tuple(), plain_dtypes_[dtype]);
    const std::optional<Plain> target = plain(out, 2);
    if (!target || !(target->extents == extents) || !target->array.writable() ||
        !apart_from(target->view, right->view) ||
        !(x ? apart({span_of(target->view), span_of(x->view)})
            : apart_from(target->view, q->view))) {
      return nb::none();
    }
    GemmOptions options = gemm_options(alpha, beta);
    std::optional<Plain> offset;
    if (!bias.is_none()) {
      offset = plain(bias, 1);
      if (!offset || offset->extents.dimensions != 1 || offset->extents.last() != extents.last() ||
          !apart({span_of(target->view), span_of(offset->view)})) {
        return nb::none();
      }
      options.bias = &offset->view;
    }
    const GemmOperand left = x ? GemmOperand(x->view) : GemmOperand(q->view);
    gemm_with_workspace(left, right->view, target->view, options);
    return out;
  }

 private:
  // A dense array of at least so many dimensions.
  std::optional<Plain> plain(nb::handle x, int dimensions) const {
    if (x.type().ptr() != array_type_.ptr()) return std::nullopt;
    NumpyArray array(x, array_struct_);
    const int dtype = position_of(nb::getattr(x, dtype_), plain_dtypes_);
    if (dtype < 0 || !array.dense()) return std::nullopt;
    const Extents extents = array.extents();
    if (extents.dimensions < dimensions) return std::nullopt;
    const Buffer view = Buffer::dense(array.data<void>(), all_dtypes[dtype], extents.shape());
    return Plain{view, extents, std::move(array)};
  }

  // Whether value is None, or a float that a tensor may be quantized with.
  static bool read_factor(nb::handle value, float& factor) {
    if (value.is_none()) return true;
    if (!PyFloat_CheckExact(value.ptr())) return false;
    const double number = PyFloat_AsDouble(value.ptr());
    if (!(number >= 0.0)) return false;
    factor = nearest_float(number);
    return float32::is_finite(bits_of(factor)) && (factor != 0.0f || number == 0.0);
  }

  // Whether x and the parts of q have no byte in common.
  // Of amax and tensor_scale one at most, a float, which options then point to.
  static bool read_scalar(nb::handle amax, nb::handle tensor_scale, float& scalar,
                          QuantizeOptions& options) {
    if (!amax.is_none() && !tensor_scale.is_none()) return false;
    if (!amax.is_none()) options.amax = &scalar;
    if (!tensor_scale.is_none()) options.tensor_scale = &scalar;
    return read_factor(amax.is_none() ? tensor_scale : amax, scalar);
  }

  static bool apart_from(const Buffer& x, const BlockScaled& q) {
    return apart({span_of(x), codes_span(q), scales_span(q), scalar_span(q.tensor_scale)});
  }

  // A BlockScaled of the caller's that fits, and has memory of its own.
  std::optional<Made> given(nb::handle out, const Buffer& x, const Extents& extents, int scheme,
                            int layout) const {
    const std::optional<Read> read = this->read(out);
    if (!read) return std::nullopt;
    const BlockScaled& view = read->view;
    if (view.scheme != all_schemes[scheme] || view.scale_layout != all_scale_layouts[layout] ||
        !(read->extents == extents) || !apart_from(x, view)) {
      return std::nullopt;
    }
    for (const NumpyArray& part : read->parts) {
      if (!part.writable()) return std::nullopt;
    }
    Made made;
    made.view = view;
    return made;
  }

  std::optional<Made> make(const Extents& extents, int scheme, int layout) const {
    Made made;
    made.view.scheme = all_schemes[scheme];
    made.view.scale_layout = all_scale_layouts[layout];
    made.view.shape = extents.shape();
    made.shape = extents.tuple();
    made.codes =
        call_with(empty_, code_extents(made.view.scheme, extents).tuple(), code_dtypes_[scheme]);
    made.scales = call_with(empty_, scale_extents(made.view.scale_index(), extents).tuple(),
                            scale_dtypes_[scheme]);
    made.view.codes = NumpyArray(made.codes, array_struct_).data<std::uint8_t>();
    made.view.scales = NumpyArray(made.scales, array_struct_).data<std::uint8_t>();
    made.tensor_scale = nb::none();
    if (facts_of(made.view.scheme).has_tensor_scale) {
      made.tensor_scale = call_with(empty_, no_extents_, plain_dtypes_[0]);
      made.view.tensor_scale = NumpyArray(made.tensor_scale, array_struct_).data<float>();
    }
    return made;
  }

  nb::object result(const Made& made) const {
    const auto scheme = static_cast<std::size_t>(made.view.scheme);
    const auto layout = static_cast<std::size_t>(made.view.scale_layout);
    return block_scaled_.make(made.codes, made.scales, made.tensor_scale, scheme_names_[scheme],
                              made.shape, layout_names_[layout]);
  }

  std::optional<Read> read(nb::handle q) const {
    const auto fields = block_scaled_.fields_of(q);
    if (!fields) return std::nullopt;
    const auto& [codes, scales, tensor_scale, scheme_name, shape, layout_name] = *fields;
    const int scheme = position_of_name(scheme_name, scheme_names_);
    const int layout = position_of_name(layout_name, layout_names_);
    if (scheme < 0 || layout < 0) return std::nullopt;

    Read read;
    if (!read_extents(shape, read.extents)) return std::nullopt;
    read.view.scheme = all_schemes[scheme];
    read.view.scale_layout = all_scale_layouts[layout];
    read.parts.reserve(3);
    // Extents that some array has multiply without overflow; others might not.
    if (!add_part(read, codes, code_dtypes_[scheme],
                  code_extents(read.view.scheme, read.extents))) {
      return std::nullopt;
    }
    read.view.shape = read.extents.shape();
    if (!add_part(read, scales, scale_dtypes_[scheme],
                  scale_extents(read.view.scale_index(), read.extents))) {
      return std::nullopt;
    }
    read.view.codes = read.parts[0].data<std::uint8_t>();
    read.view.scales = read.parts[1].data<std::uint8_t>();
    if (facts_of(read.view.scheme).has_tensor_scale) {
      if (!add_part(read, tensor_scale, plain_dtypes_[0], Extents{})) return std::nullopt;
      read.view.tensor_scale = read.parts[2].data<float>();
    } else if (!tensor_scale.is_none()) {
      return std::nullopt;
    }
    return read;
  }

  bool add_part(Read& read, nb::handle array, const nb::object& dtype,
                const Extents& extents) const {
    if (array.type().ptr() != array_type_.ptr() || !nb::getattr(array, dtype_).is(dtype)) {
      return false;
    }
    read.parts.emplace_back(array, array_struct_);
    return read.parts.back().dense() && read.parts.back().extents() == extents;
  }

  nb::object array_type_;
  nb::object empty_;
  BlockScaledClass block_scaled_;
  Objects plain_dtypes_;
  Objects code_dtypes_;
  Objects scale_dtypes_;
  Objects scheme_names_;
  Objects layout_names_;
  nb::object array_struct_;
  nb::object dtype_;
  nb::object no_extents_;
};

}  // namespace

void bind_numpy_calls(nb::module_& module) {
  module.def(
      "extent",
      [](nb::capsule array_struct) {
        const auto* array = static_cast<const ArrayStruct*>(array_struct.data());
        std::intptr_t first = reinterpret_cast<std::intptr_t>(array->data);
        std::intptr_t last = first;
        bool empty = false;
        for (int i = 0; i < array->dimensions; ++i) {
          const std::intptr_t reach = (array->shape[i] - 1) * array->strides[i];
          (reach < 0 ? first : last) += reach;
          empty = empty || array->shape[i] == 0;
        }
        return empty ? nb::make_tuple(first, first)
                     : nb::make_tuple(first, last + array->item_size);
      },
      "array_struct"_a, nb::sig("def extent(array_struct: object) -> tuple[int, int]"));
  nb::class_<NumpyCalls>(module, "NumpyCalls")
      .def(nb::init<nb::object, nb::object, nb::object, Objects, Objects, Objects, Objects,
                    Objects>(),
           "array_type"_a, "empty"_a, "block_scaled"_a, "plain_dtypes"_a, "code_dtypes"_a,
           "scale_dtypes"_a, "scheme_names"_a, "layout_names"_a)
      .def("quantize", &NumpyCalls::quantize, "x"_a.none(), "scheme"_a, "layout"_a, "options"_a,
           "columns"_a, "amax"_a.none(), "tensor_scale"_a.none(), "out"_a.none())
      .def("quantize_both", &NumpyCalls::quantize_both, "x"_a.none(), "scheme"_a, "layout"_a,
           "row_options"_a, "column_options"_a, "amax"_a.none(), "tensor_scale"_a.none())
      .def("fake_quantize", &NumpyCalls::fake_quantize, "x"_a.none(), "scheme"_a, "options"_a,
           "amax"_a.none(), "tensor_scale"_a.none(), "out"_a.none())
      .def("dequantize", &NumpyCalls::dequantize, "q"_a.none(), "dtype"_a, "out"_a.none())
      .def("gemm", &NumpyCalls::gemm, "a"_a.none(), "b"_a.none(), "dtype"_a, "alpha"_a, "beta"_a,
           "bias"_a.none(), "precision"_a, "out"_a.none());
}

}  // namespace mxkern::bindings
