// bindings/module.cc: the extension module mxkern._core, and its exceptions.
#include "bindings.h"
#include "mxkern/quantize.h"

namespace nb = nanobind;

NB_MODULE(_core, module) {
  using namespace mxkern;
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
    throw nb::import_error(
        "mxkern: this is a subinterpreter, where types of compiled modules would end up in the "
        "wrong one; import mxkern in the main interpreter, or use a process");
  }
  if (nb::type<QuantizeOptions>().is_valid()) {
    throw nb::import_error(
        "mxkern: it was imported before, and its modules were taken out of sys.modules; expected "
        "them to stay, as compiled modules are made once a process; leave mxkern and what begins "
        "with mxkern. in sys.modules, or start a new process");
  }
  module.doc() =
      "The C++ library mxkern over plain addresses. The package mxkern checks arguments.";
  // Options and NumPy's dtypes are kept until the process ends; that is no leak to report.
  nb::set_leak_warnings(false);
  // InvalidArgument is a std::invalid_argument, which becomes a ValueError, and Unsupported a
  // std::runtime_error, which becomes a RuntimeError, without help.
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const InvalidType& failure) {
      PyErr_SetString(PyExc_TypeError, failure.what());
    }
  });
  bindings::bind_schemes(module);
  bindings::bind_custom_schemes(module);
  bindings::bind_info(module);
  bindings::bind_quantize(module);
  bindings::bind_gemm(module);
  bindings::bind_calls(module);
  bindings::bind_xla_calls(module);
  nb::module_::import_("atexit").attr("register")(
      nb::cpp_function(&bindings::ReleasedInterpreter::close));
}
