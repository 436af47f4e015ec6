// bindings/quantize.cc: quantize along rows, columns and both, and the tensor amax.
#include <cstddef>
#include <functional>
#include <tuple>
#include <utility>

#include "bindings.h"
#include "mxkern/core/math.h"
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

// Options whose offset is the value of an array. They keep it alive, and `numbers` say nothing of
// it.
struct OffsetOptions : QuantizeOptions {
  OffsetOptions(const QuantizeOptions& options, nb::object array, Address address)
      : QuantizeOptions(options), array(std::move(array)) {
    offset_at = static_cast<const std::uint64_t*>(address.value);
  }

  QuantizeOptions without_array() const {
    QuantizeOptions options = *this;
    options.offset_at = nullptr;
    return options;
  }

  nb::object array;
};

// Options are shared between calls; where a tensor's amax or scale lies is a call's own.
QuantizeOptions with_tensor_scale(QuantizeOptions options, Address amax, Address tensor_scale,
                                  Address found_amax) {
  options.amax = static_cast<const float*>(amax.value);
  options.tensor_scale = static_cast<const float*>(tensor_scale.value);
  options.found_amax = static_cast<float*>(found_amax.value);
  return options;
}

}  // namespace

void bind_quantize(nb::module_& module) {
  nb::class_<QuantizeOptions>(module, "QuantizeOptions")
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

  using Quantize = void(const Buffer&, const BlockScaled&, const QuantizeOptions&, Stream);
  const auto define = [&module](const char* name, Quantize* operation) {
    module.def(
        name,
        [operation](const Buffer& x, const BlockScaled& out, const QuantizeOptions& options,
                    Address amax, Address tensor_scale, Address found_amax, Address stream) {
          call(x.shape.size(), [&] {
            operation(x, out, with_tensor_scale(options, amax, tensor_scale, found_amax),
                      Stream{stream.value});
          });
        },
        "x"_a, "out"_a, "options"_a, "amax"_a.none(), "tensor_scale"_a.none(),
        "found_amax"_a.none(), "stream"_a.none());
  };
  define("quantize", &quantize);
  define("quantize_columns", &quantize_columns);

  module.def(
      "quantize_both",
      [](const Buffer& x, const BlockScaled& rows, const BlockScaled& columns,
         const QuantizeOptions& row_options, const QuantizeOptions& column_options,
         Address row_amax, Address column_amax, Address row_tensor_scale,
         Address column_tensor_scale, Address row_found_amax, Address column_found_amax,
         Address stream) {
        call(x.shape.size(), [&] {
          quantize_both(x, rows, columns,
                        with_tensor_scale(row_options, row_amax, row_tensor_scale, row_found_amax),
                        with_tensor_scale(column_options, column_amax, column_tensor_scale,
                                          column_found_amax),
                        Stream{stream.value});
        });
      },
      "x"_a, "rows"_a, "columns"_a, "row_options"_a, "column_options"_a, "row_amax"_a.none(),
      "column_amax"_a.none(), "row_tensor_scale"_a.none(), "column_tensor_scale"_a.none(),
      "row_found_amax"_a.none(), "column_found_amax"_a.none(), "stream"_a.none());

  module.def(
      "fake_quantize",
      [](const Buffer& x, int scheme, const Buffer& out, const QuantizeOptions& options,
         Address amax, Address tensor_scale, Address found_amax, Address stream) {
        call(x.shape.size(), [&] {
          fake_quantize(x, static_cast<Scheme>(scheme), out,
                        with_tensor_scale(options, amax, tensor_scale, found_amax),
                        Stream{stream.value});
        });
      },
      "x"_a, "scheme"_a, "out"_a, "options"_a, "amax"_a.none(), "tensor_scale"_a.none(),
      "found_amax"_a.none(), "stream"_a.none());

  module.def(
      "tensor_amax",
      [](const Buffer& x, Address amax, Address stream) {
        call(x.shape.size(),
             [&] { tensor_amax(x, static_cast<float*>(amax.value), Stream{stream.value}); });
      },
      "x"_a, "amax"_a, "stream"_a.none());
}

}  // namespace mxkern::bindings
