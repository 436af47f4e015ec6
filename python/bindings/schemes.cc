// bindings/schemes.cc: the library's lists of schemes, dtypes and options. Their positions are the
// numbers that the other functions take.
#include "bindings.h"

namespace nb = nanobind;

namespace mxkern::bindings {
namespace {

template <class List>
nb::tuple names_of(const List& list) {
  nb::list names;
  for (const auto item : list) names.append(name_of(item));
  return nb::tuple(names);
}

}  // namespace

void bind_schemes(nb::module_& module) {
  nb::class_<SchemeFacts>(module, "SchemeFacts")
      .def_ro("name", &SchemeFacts::name)
      .def_ro("format", &SchemeFacts::format)
      .def_ro("scale_format", &SchemeFacts::scale_format)
      .def_ro("bits", &SchemeFacts::bits)
      .def_ro("block", &SchemeFacts::block)
      .def_ro("block_bytes", &SchemeFacts::block_bytes)
      .def_ro("has_tensor_scale", &SchemeFacts::has_tensor_scale)
      .def_ro("max_value", &SchemeFacts::max_value)
      .def_ro("min_subnormal", &SchemeFacts::min_subnormal)
      .def_ro("nan_scale", &SchemeFacts::nan_scale);

  module.def(
      "scheme_facts",
      [] {
        nb::list facts;
        for (const Scheme scheme : all_schemes) facts.append(facts_of(scheme));
        return facts;
      },
      nb::sig("def scheme_facts() -> list[SchemeFacts]"));
  module.def(
      "dtype_names", [] { return names_of(all_dtypes); },
      nb::sig("def dtype_names() -> tuple[str, ...]"));
  module.def(
      "scale_rule_names", [] { return names_of(all_scale_rules); },
      nb::sig("def scale_rule_names() -> tuple[str, ...]"));
  module.def(
      "rounding_names", [] { return names_of(all_roundings); },
      nb::sig("def rounding_names() -> tuple[str, ...]"));
  module.def(
      "block_error_names", [] { return names_of(all_block_errors); },
      nb::sig("def block_error_names() -> tuple[str, ...]"));
  module.def(
      "scale_layout_names", [] { return names_of(all_scale_layouts); },
      nb::sig("def scale_layout_names() -> tuple[str, ...]"));
  module.def(
      "gemm_precision_names", [] { return names_of(all_gemm_precisions); },
      nb::sig("def gemm_precision_names() -> tuple[str, ...]"));
  module.def(
      "prepared_form_names", [] { return names_of(all_prepared_forms); },
      nb::sig("def prepared_form_names() -> tuple[str, ...]"));
  module.def(
      "hadamard_sizes",
      [] {
        nb::list sizes;
        for (const int size : hadamard_sizes) sizes.append(size);
        return nb::tuple(sizes);
      },
      nb::sig("def hadamard_sizes() -> tuple[int, ...]"));
  module.def(
      "default_sign_mask",
      [] { return nb::make_tuple(default_sign_mask.low, default_sign_mask.high); },
      nb::sig("def default_sign_mask() -> tuple[int, int]"));
}

}  // namespace mxkern::bindings
