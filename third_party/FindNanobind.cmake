# third_party/FindNanobind.cmake: Python, and the nanobind package that is installed for it.
# Afterwards nanobind_add_module() is there. nanobind comes from PyPI: `pip install nanobind`.

find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)

execute_process(COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
  OUTPUT_VARIABLE nanobind_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
  RESULT_VARIABLE mxkern_nanobind_missing)
if(mxkern_nanobind_missing)
  message(FATAL_ERROR "mxkern: the Python bindings need nanobind, and ${Python_EXECUTABLE} has "
    "none; install it with: ${Python_EXECUTABLE} -m pip install 'nanobind>=3.1,<4'")
endif()
find_package(nanobind 3.1 CONFIG REQUIRED)
set(Nanobind_FOUND TRUE)
