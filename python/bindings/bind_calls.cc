// bindings/bind_calls.cc: the operations over arrays of any framework, as Python calls them.
#include <memory>
#include <utility>

#include "calls.h"
#include "numpy_reader.h"
#include "signature.h"
#include "torch_reader.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mxkern::bindings {

void bind_quantize_calls(nb::module_& module);
void bind_product_calls(nb::module_& module);
void bind_prepare_calls(nb::module_& module);
void bind_transform_calls(nb::module_& module);

void bind_calls(nb::module_& module) {
  nb::class_<Signature>(module, "Signature")
      .def(nb::init<std::string, Objects, Objects, const Objects&>(), "function"_a, "names"_a,
           "defaults"_a, "taken"_a)
      .def_ro("function", &Signature::function);

  // Functions and no methods: torch.compile loses the object of a method of a compiled module.
  nb::class_<Calls>(module, "Calls")
      .def(
          "__init__",
          [](Calls* self, nb::object faults, nb::object adapter_of, nb::object block_scaled,
             nb::object prepared_operand, nb::typed<nb::dict, nb::object, int> schemes,
             Objects scheme_names, Objects layout_names, Objects form_names, Objects dtype_names,
             Objects precision_names, Objects element_names, std::vector<int> code_elements,
             std::vector<int> scale_elements) {
            new (self)
                Calls({std::move(faults), std::move(adapter_of),
                       BlockScaledClass(std::move(block_scaled)),
                       PreparedOperandClass(std::move(prepared_operand)), std::move(schemes),
                       std::move(scheme_names), std::move(layout_names), std::move(form_names),
                       std::move(dtype_names), std::move(precision_names), std::move(element_names),
                       std::move(code_elements), std::move(scale_elements)});
          },
          "faults"_a, "adapter_of"_a, "block_scaled"_a, "prepared_operand"_a, "schemes"_a,
          "scheme_names"_a, "layout_names"_a, "form_names"_a, "dtype_names"_a, "precision_names"_a,
          "element_names"_a, "code_elements"_a, "scale_elements"_a);
  module
      .def(
          "read_numpy",
          [](Calls& calls, nb::object adapter, nb::object array_type, nb::object empty,
             Objects dtypes) {
            const nb::object type = array_type;
            calls.add({type},
                      std::make_unique<NumpyReader>(std::move(adapter), std::move(array_type),
                                                    std::move(empty), std::move(dtypes)));
          },
          "calls"_a, "adapter"_a, "array_type"_a, "empty"_a, "dtypes"_a)
      .def(
          "read_torch",
          [](Calls& calls, nb::object adapter, nb::object tensor_type, nb::object parameter_type,
             nb::object empty_cpu, nb::object empty_cuda, nb::object current_device,
             nb::object current_stream, nb::object increment_version, nb::object forward_ad,
             Objects recorders, const Objects& samples) {
            auto reader = std::make_unique<TorchReader>(
                std::move(adapter),
                TorchFunctions{tensor_type, parameter_type, std::move(empty_cpu),
                               std::move(empty_cuda), std::move(current_device),
                               std::move(current_stream), std::move(increment_version),
                               std::move(forward_ad), std::move(recorders)},
                samples);
            calls.add({tensor_type, parameter_type}, std::move(reader));
          },
          "calls"_a, "adapter"_a, "tensor_type"_a, "parameter_type"_a, "empty_cpu"_a.none(),
          "empty_cuda"_a.none(), "current_device"_a.none(), "current_stream"_a.none(),
          "increment_version"_a.none(), "forward_ad"_a, "recorders"_a, "samples"_a);
  bind_quantize_calls(module);
  bind_product_calls(module);
  bind_prepare_calls(module);
  bind_transform_calls(module);
}

}  // namespace mxkern::bindings
