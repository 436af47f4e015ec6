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
#include "gemm_workspace.h"
#include "numpy_array.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mxkern::bindings {
namespace {

using Objects = std::vector<nb::object>;

int position_of(nb::handle item, const Objects& items) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (item.is(items[i])) return static_cast<int>(i);
  }
  return -1;
}

// The extents of the codes and of the scales of a tensor.
Extents code_extents(Scheme scheme, Extents extents) {
  extents.last() = code_row_bytes(scheme, extents.last());
  return extents;
}

Extents scale_extents(const ScaleIndex& index, Extents extents) {
  if (index.layout == ScaleLayout::row_major) {
    extents.last() = index.blocks;
  } else {
    if (extents.dimensions > 1) --extents.dimensions;
    extents.last() = index.size();
  }
  return extents;
}

// A BlockScaled of NumPy arrays while a call looks at it.
struct Read {
  BlockScaled view;
  Extents extents;
  std::vector<NumpyArray> parts;
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
        no_extents_(nb::make_tuple()),
        tuple_new_(nb::handle(reinterpret_cast<PyObject*>(&PyTuple_Type)).attr("__new__")) {}

  nb::object quantize(nb::handle x, int scheme, int layout, const QuantizeOptions& options,
                      bool columns) const {
    if (x.type().ptr() != array_type_.ptr()) return nb::none();
    const NumpyArray array(x, array_struct_);
    const int dtype = position_of(nb::getattr(x, dtype_), plain_dtypes_);
    if (dtype < 0 || !array.dense()) return nb::none();
    Extents extents = array.extents();
    if (extents.dimensions < (columns ? 2 : 1)) return nb::none();
    const Buffer buffer = Buffer::dense(array.data<void>(), all_dtypes[dtype], extents.shape());
    if (columns) std::swap(extents.last(), extents.items[extents.dimensions - 2]);

    BlockScaled out;
    out.scheme = all_schemes[scheme];
    out.scale_layout = all_scale_layouts[layout];
    out.shape = extents.shape();
    const nb::object shape = extents.tuple();
    const nb::object codes =
        call_with(empty_, code_extents(out.scheme, extents).tuple(), code_dtypes_[scheme]);
    const nb::object scales =
        call_with(empty_, scale_extents(out.scale_index(), extents).tuple(), scale_dtypes_[scheme]);
    const bool two_levels = facts_of(out.scheme).has_tensor_scale;
    const nb::object tensor_scale =
        two_levels ? call_with(empty_, no_extents_, plain_dtypes_[0]) : nb::none();
    out.codes = NumpyArray(codes, array_struct_).data<std::uint8_t>();
    out.scales = NumpyArray(scales, array_struct_).data<std::uint8_t>();
    if (two_levels) out.tensor_scale = NumpyArray(tensor_scale, array_struct_).data<float>();
    try {
      call(buffer.shape.size(), [&] {
        columns ? mxkern::quantize_columns(buffer, out, options)
                : mxkern::quantize(buffer, out, options);
      });
    } catch (const InvalidArgument&) {
      return nb::none();
    }
    // tuple.__new__ takes half the time of the constructor of a NamedTuple.
    return call_with(tuple_new_, block_scaled_,
                     nb::make_tuple(codes, scales, tensor_scale, scheme_names_[scheme], shape,
                                    layout_names_[layout]));
  }

  nb::object dequantize(nb::handle q, int dtype) const {
    const std::optional<Read> read = this->read(q);
    if (!read) return nb::none();
    const nb::object out = call_with(empty_, read->extents.tuple(), plain_dtypes_[dtype]);
    const Buffer buffer = Buffer::dense(NumpyArray(out, array_struct_).data<void>(),
                                        all_dtypes[dtype], read->view.shape);
    call(read->view.shape.size(), [&] { mxkern::dequantize(read->view, buffer); });
    return out;
  }

  // Of two matrices.
  nb::object gemm(nb::handle a, nb::handle b, int dtype, float alpha) const {
    const std::optional<Read> left = read(a);
    const std::optional<Read> right = read(b);
    if (!left || !right || left->extents.dimensions != 2 || right->extents.dimensions != 2 ||
        left->view.shape.columns != right->view.shape.columns) {
      return nb::none();
    }
    Extents extents = left->extents;
    extents.last() = right->view.shape.rows;
    const nb::object out = call_with(empty_, extents.tuple(), plain_dtypes_[dtype]);
    const Buffer buffer = Buffer::dense(NumpyArray(out, array_struct_).data<void>(),
                                        all_dtypes[dtype], extents.shape());
    gemm_with_workspace(left->view, right->view, buffer, GemmOptions{.alpha = alpha});
    return out;
  }

 private:
  std::optional<Read> read(nb::handle q) const {
    if (q.type().ptr() != block_scaled_.ptr()) return std::nullopt;
    const auto item = [&q](int i) { return nb::handle(PyTuple_GetItem(q.ptr(), i)); };
    const int scheme = position_of(item(3), scheme_names_);
    const int layout = position_of(item(5), layout_names_);
    if (scheme < 0 || layout < 0) return std::nullopt;

    Read read;
    if (!read_extents(item(4), read.extents)) return std::nullopt;
    read.view.scheme = all_schemes[scheme];
    read.view.scale_layout = all_scale_layouts[layout];
    read.parts.reserve(3);
    // Extents that some array has multiply without overflow; others might not.
    if (!add_part(read, item(0), code_dtypes_[scheme],
                  code_extents(read.view.scheme, read.extents))) {
      return std::nullopt;
    }
    read.view.shape = read.extents.shape();
    if (!add_part(read, item(1), scale_dtypes_[scheme],
                  scale_extents(read.view.scale_index(), read.extents))) {
      return std::nullopt;
    }
    read.view.codes = read.parts[0].data<std::uint8_t>();
    read.view.scales = read.parts[1].data<std::uint8_t>();
    if (facts_of(read.view.scheme).has_tensor_scale) {
      if (!add_part(read, item(2), plain_dtypes_[0], Extents{})) return std::nullopt;
      read.view.tensor_scale = read.parts[2].data<float>();
    } else if (!item(2).is_none()) {
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

  // A tuple of one extent or more, each small enough to calculate with.
  static bool read_extents(nb::handle shape, Extents& extents) {
    if (!PyTuple_CheckExact(shape.ptr())) return false;
    const Py_ssize_t dimensions = PyTuple_Size(shape.ptr());
    if (dimensions < 1 || dimensions > Extents::most) return false;
    extents.dimensions = static_cast<int>(dimensions);
    for (int i = 0; i < extents.dimensions; ++i) {
      PyObject* extent = PyTuple_GetItem(shape.ptr(), i);
      if (!PyLong_CheckExact(extent)) return false;
      int overflow = 0;
      extents.items[i] = PyLong_AsLongLongAndOverflow(extent, &overflow);
      constexpr std::int64_t largest = std::int64_t{1} << 48;
      if (overflow != 0 || extents.items[i] < 0 || extents.items[i] > largest) return false;
    }
    return true;
  }

  nb::object array_type_;
  nb::object empty_;
  nb::object block_scaled_;
  Objects plain_dtypes_;
  Objects code_dtypes_;
  Objects scale_dtypes_;
  Objects scheme_names_;
  Objects layout_names_;
  nb::object array_struct_;
  nb::object dtype_;
  nb::object no_extents_;
  nb::object tuple_new_;
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
           "columns"_a)
      .def("dequantize", &NumpyCalls::dequantize, "q"_a.none(), "dtype"_a)
      .def("gemm", &NumpyCalls::gemm, "a"_a.none(), "b"_a.none(), "dtype"_a, "alpha"_a);
}

}  // namespace mxkern::bindings
