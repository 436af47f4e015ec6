// bindings/custom/schemes.cc: formats, schemes and options that are known at run time, as classes
// of the extension module.
#include <nanobind/stl/string.h>

#include "bindings.h"
#include "custom/scheme.h"

namespace nb = nanobind;

namespace mxkern::bindings {
namespace {

AnyFormat format_of(int exponent_bits, int mantissa_bits, bool is_signed, bool is_integer,
                    int specials) {
  return {exponent_bits, mantissa_bits, is_signed, is_integer, static_cast<Specials>(specials)};
}

}  // namespace

void bind_custom_schemes(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<AnyFormat>(module, "AnyFormat")
      .def(nb::new_(&format_of), "exponent_bits"_a, "mantissa_bits"_a, "is_signed"_a,
           "is_integer"_a, "specials"_a)
      .def_prop_ro("is_in_float32", [](const AnyFormat& f) { return f.is_in_float32(); })
      .def_prop_ro("width", [](const AnyFormat& f) { return f.width(); })
      .def_prop_ro("stored_bits", [](const AnyFormat& f) { return f.stored_bits(); })
      .def_prop_ro("max_value", [](const AnyFormat& f) { return f.max_value(); })
      .def_prop_ro("min_subnormal", [](const AnyFormat& f) { return f.min_subnormal(); })
      .def(
          "decode", [](const AnyFormat& f, std::uint32_t code) { return decode(f, code); },
          "code"_a)
      .def(
          "encode",
          [](const AnyFormat& f, const AnyOptions& options, double value, std::uint32_t random) {
            return encode(f, options.rounding, value, random);
          },
          "options"_a, "value"_a, "random"_a = 0);
  nb::class_<AnyOptions>(module, "AnyOptions")
      .def(nb::new_([](int rounding, int random_bits, bool subnormals, bool saturates, int rule,
                       float threshold, bool mse, std::uint64_t seed, std::uint64_t offset,
                       bool square, bool transposed) {
             AnyOptions options;
             options.rounding = {static_cast<AnyRounding>(rounding), random_bits, subnormals,
                                 saturates};
             options.scale = {static_cast<ScaleRule>(rule), threshold, mse};
             options.seed = seed;
             options.offset = offset;
             options.square = square;
             options.words_are_transposed = transposed;
             return options;
           }),
           "rounding"_a = 0, "random_bits"_a = 16, "subnormals"_a = true, "saturates"_a = true,
           "rule"_a = 0, "threshold"_a = 0.0f, "mse"_a = false, "seed"_a = 0, "offset"_a = 0,
           "square"_a = false, "transposed"_a = false);
  nb::class_<CustomScheme>(module, "CustomScheme")
      .def(nb::new_([](const AnyFormat& element, int scale_kind, int scale_exponent_bits,
                       int scale_mantissa_bits, std::int64_t block_rows, std::int64_t block_columns,
                       int tensor_scales, nb::str name, int codes, int scales) {
             CustomScheme made;
             made.scheme = {
                 element,
                 {static_cast<AnyScaleKind>(scale_kind), scale_exponent_bits, scale_mantissa_bits},
                 block_rows,
                 block_columns,
                 static_cast<TensorScales>(tensor_scales)};
             made.name = std::move(name);
             made.codes = static_cast<Element>(codes);
             made.scales = static_cast<Element>(scales);
             return made;
           }),
           "element"_a, "scale_kind"_a, "scale_exponent_bits"_a, "scale_mantissa_bits"_a,
           "block_rows"_a, "block_columns"_a, "tensor_scales"_a, "name"_a, "codes"_a, "scales"_a)
      .def_prop_ro("nan_scale", [](const CustomScheme& s) { return s.scheme.scale.nan_code(); })
      .def_prop_ro("scale_bits", [](const CustomScheme& s) { return s.scheme.scale.stored_bits(); })
      .def_prop_ro("is_exact_in_bfloat16",
                   [](const CustomScheme& s) { return s.scheme.is_exact_in_bfloat16(); })
      .def(
          "decode_scale",
          [](const CustomScheme& s, std::uint32_t code) { return s.scheme.scale.decode(code); },
          "code"_a)
      .def(
          "code_row_bytes",
          [](const CustomScheme& s, std::int64_t columns) {
            return s.scheme.code_row_bytes(columns);
          },
          "columns"_a);
  module.def(
      "any_names",
      [] {
        nb::list names;
        for (const AnyRounding rounding : all_any_roundings) names.append(name_of(rounding));
        return nb::tuple(names);
      },
      nb::sig("def any_names() -> tuple[str, ...]"));
}

}  // namespace mxkern::bindings
