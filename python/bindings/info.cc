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
  nb::class_<Info>(module, "Info")
      .def_ro("version", &Info::version)
      .def_ro("build", &Info::build)
      .def_ro("instruction_set", &Info::instruction_set)
      .def_ro("gemm_unit", &Info::gemm_unit)
      .def_ro("threads", &Info::threads)
      .def_ro("threads_from", &Info::threads_from)
      .def_ro("built_with_cuda", &Info::built_with_cuda)
      .def_ro("cuda", &Info::cuda)
      .def_ro("blackwell", &Info::blackwell)
      .def_ro("devices", &Info::devices);
  module.def("info", &info);
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
