# cmake/options.cmake: the options of the build and their defaults.

option(MXKERN_PYTHON "Build the Python bindings" OFF)
option(MXKERN_TESTS "Build the C++ tests (needs GoogleTest)" OFF)
option(MXKERN_TEST_FEWER
  "Leave out the phantom schemes, comparisons with CUTLASS and CUDA headers, and tests of large tensors" OFF)
option(MXKERN_FUZZ "Build the fuzz targets" OFF)
option(MXKERN_SANITIZE "Build with AddressSanitizer and UndefinedBehaviorSanitizer" OFF)

set(MXKERN_CUDA AUTO CACHE STRING "CUDA kernels: AUTO (where there are nvcc and a GPU), ON or OFF")
set_property(CACHE MXKERN_CUDA PROPERTY STRINGS AUTO ON OFF)
set(MXKERN_CUDA_ARCHITECTURES AUTO CACHE STRING
  "AUTO (this machine's GPU, or the release list where there is none) or a list such as 80;90a;100a;120a")
option(MXKERN_CUDA_TOGETHER
  "Compile the CUDA kernels of a kind as one file for all schemes: a third less work, in long pieces" OFF)
set(MXKERN_CUTLASS AUTO CACHE STRING
  "Block-scaled kernels of Blackwell: AUTO (where CUTLASS is found and 100a or 120a is built), ON or OFF")
set_property(CACHE MXKERN_CUTLASS PROPERTY STRINGS AUTO ON OFF)

option(MXKERN_INSTALL "Install the library, its headers and the CMake package" ${PROJECT_IS_TOP_LEVEL})

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(MXKERN_SANITIZE)
  # More optimization takes half as long again to instrument, and saves no time when it runs.
  string(REPLACE "-O2" "-O1" CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=all
    -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=address,undefined)
endif()
if(MXKERN_FUZZ AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
