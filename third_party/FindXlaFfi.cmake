# third_party/FindXlaFfi.cmake: the headers of XLA's foreign function interface, by which programs of
# JAX call libraries. Gives XlaFfi::XlaFfi. In this order: MXKERN_XLA_FFI_DIR, and PyPI's jaxlib for
# the Python in use. What is built with them works with that jaxlib and newer ones.

set(MXKERN_XLA_FFI_DIR "" CACHE PATH "A folder with xla/ffi/api/ffi.h; empty: find one")

set(mxkern_xla_ffi_hints ${MXKERN_XLA_FFI_DIR})
find_package(Python 3 QUIET COMPONENTS Interpreter)
if(NOT MXKERN_XLA_FFI_DIR AND Python_EXECUTABLE)
  execute_process(COMMAND ${Python_EXECUTABLE} -c
    "import importlib.util as u; print(*u.find_spec('jaxlib').submodule_search_locations)"
    OUTPUT_VARIABLE mxkern_jaxlib OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(mxkern_xla_ffi_hints ${mxkern_jaxlib}/include)
endif()

find_path(XlaFfi_INCLUDE_DIR xla/ffi/api/ffi.h HINTS ${mxkern_xla_ffi_hints} NO_DEFAULT_PATH)

if(XlaFfi_INCLUDE_DIR)
  file(STRINGS ${XlaFfi_INCLUDE_DIR}/xla/ffi/api/c_api.h mxkern_xla_ffi_version
    REGEX "define XLA_FFI_API_(MAJOR|MINOR) ")
  list(TRANSFORM mxkern_xla_ffi_version REPLACE "[^0-9]" "")
  list(JOIN mxkern_xla_ffi_version "." XlaFfi_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(XlaFfi REQUIRED_VARS XlaFfi_INCLUDE_DIR VERSION_VAR XlaFfi_VERSION)
if(XlaFfi_FOUND AND NOT TARGET XlaFfi::XlaFfi)
  add_library(XlaFfi::XlaFfi INTERFACE IMPORTED)
  target_include_directories(XlaFfi::XlaFfi SYSTEM INTERFACE ${XlaFfi_INCLUDE_DIR})
endif()
