# cmake/options.cmake: the options of the build and their defaults.

option(MXKERN_PYTHON "Build the Python bindings" OFF)
option(MXKERN_TESTS "Build the C++ tests (needs GoogleTest)" OFF)
option(MXKERN_BENCH "Build the C++ benchmarks (needs Google Benchmark)" OFF)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
