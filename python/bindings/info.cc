// bindings/info.cc: what the library says about itself and this machine.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "mxkern/core/float_environment.h"
#include "mxkern/info.h"
#include "mxkern/threads.h"

namespace nb = nanobind;

namespace mxkern::bindings {

void bind_info(nb::module_& module) {
  module.def(
      "info",
      [] {
        const Info found = info();
        nb::dict dict;
        dict["version"] = found.version;
        dict["build"] = found.build;
        dict["instruction_set"] = found.instruction_set;
        dict["gemm_unit"] = found.gemm_unit;
        dict["threads"] = found.threads;
        dict["threads_from"] = found.threads_from;
        dict["built_with_cuda"] = found.built_with_cuda;
        dict["cuda"] = found.cuda;
        dict["blackwell"] = found.blackwell;
        dict["devices"] = nb::tuple(nb::cast(found.devices));
        return dict;
      },
      nb::sig("def info() -> dict[str, typing.Any]"));
  module.attr("most_threads") = most_threads;
  module.def("num_threads", &num_threads);
  module.def("set_num_threads", &set_num_threads, nb::arg("n"));
  module.def("version", &version);
  module.def("built_with_cuda", &built_with_cuda);
  // What Python computes of float32 beside the library: as exact, whatever the thread has set.
  module.def(
      "in_float_environment",
      [](const nb::object& function) {
        const FloatEnvironment environment;
        return function();
      },
      nb::arg("function"));
}

}  // namespace mxkern::bindings
