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

nb::dict dict_of(const SchemeFacts& facts) {
  nb::dict dict;
  dict["name"] = facts.name;
  dict["format"] = facts.format;
  dict["scale_format"] = facts.scale_format;
  dict["bits"] = facts.bits;
  dict["block"] = facts.block;
  dict["block_bytes"] = facts.block_bytes;
  dict["has_tensor_scale"] = facts.has_tensor_scale;
  dict["max_value"] = facts.max_value;
  dict["min_subnormal"] = facts.min_subnormal;
  dict["nan_scale"] = facts.nan_scale;
  return dict;
}

}  // namespace

void bind_schemes(nb::module_& module) {
  module.def(
      "scheme_facts",
      [] {
        nb::list all;
        for (const Scheme scheme : all_schemes) all.append(dict_of(facts_of(scheme)));
        return all;
      },
      nb::sig("def scheme_facts() -> list[dict[str, typing.Any]]"));
  module.def(
      "names",
      [] {
        nb::dict names;
        names["dtype"] = names_of(all_dtypes);
        names["scale_rule"] = names_of(all_scale_rules);
        names["rounding"] = names_of(all_roundings);
        names["block_error"] = names_of(all_block_errors);
        names["scale_layout"] = names_of(all_scale_layouts);
        names["precision"] = names_of(all_gemm_precisions);
        names["form"] = names_of(all_prepared_forms);
        return names;
      },
      nb::sig("def names() -> dict[str, tuple[str, ...]]"));
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
