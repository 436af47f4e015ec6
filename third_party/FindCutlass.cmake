# third_party/FindCutlass.cmake: CUTLASS's headers. Gives Cutlass::Cutlass.
# In this order: MXKERN_CUTLASS_DIR, an installed NvidiaCutlass, and PyPI's nvidia-cutlass
# (`pip install --no-deps nvidia-cutlass==4.2.0.0`) for the Python in use.

set(MXKERN_CUTLASS_DIR "" CACHE PATH "A CUTLASS source tree; empty: find one")

set(mxkern_cutlass_hints ${MXKERN_CUTLASS_DIR})
if(NOT MXKERN_CUTLASS_DIR)
  find_package(NvidiaCutlass CONFIG QUIET)
  if(TARGET nvidia::cutlass::cutlass)
    get_target_property(mxkern_cutlass_hints nvidia::cutlass::cutlass INTERFACE_INCLUDE_DIRECTORIES)
  endif()
endif()
find_package(Python 3 QUIET COMPONENTS Interpreter)
if(NOT mxkern_cutlass_hints AND Python_EXECUTABLE)
  # The path of the package without importing it: an import would want scipy and networkx.
  execute_process(COMMAND ${Python_EXECUTABLE} -c
    "import importlib.util as u; print(*u.find_spec('cutlass_library').submodule_search_locations)"
    OUTPUT_VARIABLE mxkern_cutlass_package OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(mxkern_cutlass_hints ${mxkern_cutlass_package}/source)
endif()

find_path(Cutlass_INCLUDE_DIR cutlass/detail/sm100_blockscaled_layout.hpp
  HINTS ${mxkern_cutlass_hints} PATH_SUFFIXES include NO_DEFAULT_PATH)

if(Cutlass_INCLUDE_DIR)
  file(STRINGS ${Cutlass_INCLUDE_DIR}/cutlass/version.h mxkern_cutlass_version
    REGEX "define CUTLASS_(MAJOR|MINOR|PATCH) ")
  list(TRANSFORM mxkern_cutlass_version REPLACE "[^0-9]" "")
  list(JOIN mxkern_cutlass_version "." Cutlass_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Cutlass REQUIRED_VARS Cutlass_INCLUDE_DIR
  VERSION_VAR Cutlass_VERSION)
if(Cutlass_FOUND AND NOT TARGET Cutlass::Cutlass)
  add_library(Cutlass::Cutlass INTERFACE IMPORTED)
  target_include_directories(Cutlass::Cutlass SYSTEM INTERFACE ${Cutlass_INCLUDE_DIR})
endif()
