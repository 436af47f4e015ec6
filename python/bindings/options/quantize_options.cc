// bindings/options/quantize_options.cc: the options of quantization.
#include <nanobind/stl/array.h>

#include <cstddef>
#include <functional>
#include <tuple>

#include "bindings.h"
#include "mxkern/core/math.h"
#include "options/offset_options.h"
#include "options/quantize_numbers.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mxkern::bindings {
void bind_quantize(nb::module_& module) {
  nb::class_<QuantizeOptions>(module, "QuantizeOptions")
      .def(nb::new_(&quantize_options), "numbers"_a)
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
