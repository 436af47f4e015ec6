// bindings/bind_calls.cc: the operations over arrays of any framework, as Python calls them.
#include <memory>
#include <utility>

#include "calls.h"
#include "readers/numpy.h"
#include "readers/torch.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mxkern::bindings {

void bind_quantize_calls(nb::module_& module);
void bind_product_calls(nb::module_& module);
void bind_expert_calls(nb::module_& module);
void bind_prepare_calls(nb::module_& module);
void bind_transform_calls(nb::module_& module);
void bind_custom_calls(nb::module_& module);
void bind_layer_calls(nb::module_& module);

void bind_calls(nb::module_& module) {
  nb::class_<Signature>(module, "Signature")
      .def(nb::init<std::string, Objects, Objects, const Objects&>(), "function"_a, "names"_a,
           "defaults"_a, "taken"_a)
      .def_ro("function", &Signature::function);

  // Functions and no methods: torch.compile loses the object of a method of a compiled module.
  nb::class_<Calls>(module, "Calls")
      .def(
          "__init__",
          [](Calls* self, const nb::kwargs& given) {
            const auto names = [&](const char* key) { return nb::cast<Objects>(given[key]); };
            const auto elements = [&](const char* key) {
              return nb::cast<std::vector<int>>(given[key]);
            };
            new (self)
                Calls({given["faults"], given["custom"], given["adapter_of"],
                       BlockScaledClass(given["block_scaled"]),
                       PreparedOperandClass(given["prepared_operand"]),
                       nb::cast<nb::dict>(given["schemes"]), names("scheme_names"),
                       names("layout_names"), names("form_names"), names("dtype_names"),
                       names("precision_names"), names("element_names"), names("rounding_names"),
                       names("rule_names"), elements("code_elements"), elements("scale_elements")});
          },
          nb::sig("def __init__(self, **given: object) -> None"));
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
          [](Calls& calls, nb::object adapter, const Objects& samples, const nb::kwargs& given) {
            const nb::object type = given["tensor_type"], parameter = given["parameter_type"];
            TorchFunctions functions{type,
                                     parameter,
                                     given["empty_cpu"],
                                     given["empty_cuda"],
                                     given["current_device"],
                                     given["current_stream"],
                                     given["increment_version"],
                                     given["forward_ad"],
                                     nb::cast<Objects>(given["recorders"])};
            calls.add({type, parameter}, std::make_unique<TorchReader>(
                                             std::move(adapter), std::move(functions), samples));
          },
          "calls"_a, "adapter"_a, "samples"_a, "given"_a,
          nb::sig("def read_torch(calls: Calls, adapter: object, samples: "
                  "collections.abc.Sequence[object], **given: object) -> None"));
  bind_quantize_calls(module);
  bind_product_calls(module);
  bind_expert_calls(module);
  bind_prepare_calls(module);
  bind_transform_calls(module);
  bind_custom_calls(module);
  bind_layer_calls(module);
}

}  // namespace mxkern::bindings
