// bindings/quantize_options.cc: the options of quantization.
#include <cstddef>
#include <functional>
#include <tuple>

#include "bindings.h"
#include "mxkern/core/math.h"
#include "offset_options.h"
#include "quantize_numbers.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mxkern::bindings {
namespace {

QuantizeOptions make_options(int scale_rule, int rounding, std::uint64_t seed, std::uint64_t offset,
                             bool square, int four_over_six, int hadamard_size,
                             std::uint64_t sign_mask_low, std::uint64_t sign_mask_high) {
  return quantize_options(
      {static_cast<std::uint64_t>(scale_rule), static_cast<std::uint64_t>(rounding), seed, offset,
       square, static_cast<std::uint64_t>(four_over_six), static_cast<std::uint64_t>(hadamard_size),
       sign_mask_low, sign_mask_high});
}

}  // namespace

void bind_quantize(nb::module_& module) {
  nb::class_<QuantizeOptions>(module, "QuantizeOptions")
      .def(nb::new_([] { return QuantizeOptions(); }))
      .def(nb::new_(&make_options), "scale_rule"_a, "rounding"_a, "seed"_a, "offset"_a, "square"_a,
           "four_over_six"_a, "hadamard_size"_a, "sign_mask_low"_a, "sign_mask_high"_a)
      .def(
          "__eq__",
          [](const QuantizeOptions& a, const QuantizeOptions& b) {
            return numbers_of(a) == numbers_of(b);
          },
          nb::is_operator(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__hash__",
           [](const QuantizeOptions& options) {
             std::size_t hash = 0;
             for (const std::uint64_t number : numbers_of(options)) {
               hash = hash * 31 + std::hash<std::uint64_t>()(number);
             }
             return hash;
           })
      .def_ro("offset", &QuantizeOptions::offset)
      .def_prop_ro("chooses_for_squares",
                   [](const QuantizeOptions& options) {
                     return options.four_over_six && options.block_shape == BlockShape::square;
                   })
      .def_prop_ro(
          "is_nearest",
          [](const QuantizeOptions& options) { return options.rounding == Rounding::nearest; })
      // Whether the transpose of a tensor is quantized as the tensor is.
      .def_prop_ro("is_symmetric",
                   [](const QuantizeOptions& options) {
                     const bool walks =
                         options.four_over_six && options.block_shape == BlockShape::square;
                     return options.rounding == Rounding::nearest && !walks;
                   })
      .def(
          "with_offset",
          [](QuantizeOptions options, std::uint64_t offset) {
            options.offset = offset;
            return options;
          },
          "offset"_a)
      .def_prop_ro("hadamard_size",
                   [](const QuantizeOptions& options) { return options.hadamard.size; })
      .def_prop_ro(
          "numbers",
          [](const QuantizeOptions& options) {
            return std::apply([](auto... items) { return nb::make_tuple(items...); },
                              numbers_of(options));
          },
          nb::sig("def numbers(self) -> tuple[int, ...]"));

  nb::class_<OffsetOptions, QuantizeOptions>(module, "OffsetOptions")
      .def(nb::init<const QuantizeOptions&, nb::object, Address>(), "options"_a, "array"_a,
           "address"_a.none())
      .def_ro("array", &OffsetOptions::array)
      .def("without_array", &OffsetOptions::without_array);

  // amax and tensor_scale are Python's numbers and become arrays.
  module.def("float32_bits", &float32::nearest_bits, "value"_a);
}

}  // namespace mxkern::bindings
