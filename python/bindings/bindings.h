// bindings/bindings.h: the parts of the extension module, and how they call the library.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>

#include "casters.h"
#include "released_interpreter.h"

namespace mxkern::bindings {

// Results, as stubs have them.
using Any = nanobind::typed<nanobind::object, nanobind::any>;
using Values = nanobind::typed<nanobind::tuple, nanobind::any, nanobind::ellipsis>;

void bind_schemes(nanobind::module_& module);
void bind_custom_schemes(nanobind::module_& module);
void bind_info(nanobind::module_& module);
void bind_quantize(nanobind::module_& module);
void bind_gemm(nanobind::module_& module);
void bind_calls(nanobind::module_& module);
void bind_xla_calls(nanobind::module_& module);

// Below this many elements giving the interpreter lock away and taking it back costs more than it
// gains the other threads.
inline constexpr std::int64_t long_work = 16384;

// Calls work(), without the interpreter lock where it takes a while.
template <class Work>
void call(std::int64_t elements, Work&& work) {
  if (elements < long_work) {
    work();
  } else {
    const ReleasedInterpreter released;
    work();
  }
}

}  // namespace mxkern::bindings
