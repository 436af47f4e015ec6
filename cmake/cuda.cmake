# cmake/cuda.cmake: whether the CUDA kernels are built, for which architectures, and if not, why.
# Sets MXKERN_CUDA_SOURCES (empty: a CPU library) and MXKERN_CUDA_STATUS, one clause for people.

if(NOT MXKERN_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "mxkern: MXKERN_CUDA is '${MXKERN_CUDA}'; expected AUTO, ON or OFF")
endif()

file(GLOB_RECURSE MXKERN_CUDA_SOURCES CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.cu)
# Those that need CUTLASS are targets of their own: cmake/cutlass.cmake.
list(FILTER MXKERN_CUDA_SOURCES EXCLUDE REGEX "/instances/sm1[02]0_[^/]*$")
set(MXKERN_CUDA_STATUS "")

if(MXKERN_CUDA STREQUAL "OFF")
  set(MXKERN_CUDA_STATUS "built with MXKERN_CUDA=OFF")
elseif(NOT MXKERN_CUDA_SOURCES)
  set(MXKERN_CUDA_STATUS "this version has no CUDA kernels")
else()
  include(CheckLanguage)
  check_language(CUDA)
  find_program(MXKERN_NVIDIA_SMI nvidia-smi)
  mark_as_advanced(MXKERN_NVIDIA_SMI)
  set(gpu_missing 1)
  if(MXKERN_NVIDIA_SMI)
    execute_process(COMMAND ${MXKERN_NVIDIA_SMI} -L RESULT_VARIABLE gpu_missing
      OUTPUT_QUIET ERROR_QUIET)
  endif()
  set(nvcc_version "")
  if(CMAKE_CUDA_COMPILER)
    execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --version OUTPUT_VARIABLE nvcc_version ERROR_QUIET)
    string(REGEX MATCH "release ([0-9.]+)" nvcc_version "${nvcc_version}")
    set(nvcc_version "${CMAKE_MATCH_1}")
  endif()
  if(NOT CMAKE_CUDA_COMPILER)
    set(MXKERN_CUDA_STATUS "no CUDA compiler was found at build time")
  elseif(nvcc_version AND nvcc_version VERSION_LESS 12.8)
    set(MXKERN_CUDA_STATUS
      "${CMAKE_CUDA_COMPILER} is of CUDA ${nvcc_version}, and 12.8 or newer is needed")
  elseif(MXKERN_CUDA STREQUAL "AUTO" AND gpu_missing)
    set(MXKERN_CUDA_STATUS "no GPU was found at build time, and MXKERN_CUDA=ON was not asked for")
  endif()
endif()

if(MXKERN_CUDA_STATUS)
  if(MXKERN_CUDA STREQUAL "ON")
    message(FATAL_ERROR "mxkern: MXKERN_CUDA=ON, but ${MXKERN_CUDA_STATUS}; use MXKERN_CUDA=OFF "
      "for a CPU library; where nvcc is missing, name it with CMAKE_CUDA_COMPILER")
  endif()
  set(MXKERN_CUDA_SOURCES "")
else()
  if(NOT MXKERN_CUDA_ARCHITECTURES STREQUAL "AUTO")
    # Code for each, and no PTX: from PTX of an architecture before 9.0 a driver would make kernels
    # that know nothing of clusters and early starts, for devices on which they are launched with both.
    set(CMAKE_CUDA_ARCHITECTURES "")
    if(MXKERN_CUDA_ARCHITECTURES STREQUAL "")
      set(MXKERN_CUDA_ARCHITECTURES none)  # for the error
    endif()
    foreach(architecture IN LISTS MXKERN_CUDA_ARCHITECTURES)
      if(NOT architecture MATCHES "^([0-9]+)[af]?(-real|-virtual)?$" OR CMAKE_MATCH_1 LESS 80)
        message(FATAL_ERROR "mxkern: MXKERN_CUDA_ARCHITECTURES has ${architecture}; expected compute "
          "capabilities from 8.0 on, as 80;90a;100a;120a, or AUTO")
      endif()
      if(architecture MATCHES "^[0-8][0-9]-virtual$")
        message(FATAL_ERROR "mxkern: MXKERN_CUDA_ARCHITECTURES has ${architecture}, PTX that newer "
          "devices would run in ways it is not made for; name the architectures of the devices, "
          "without -virtual")
      endif()
      if(architecture MATCHES "^[0-9]+[af]?$")
        string(APPEND architecture "-real")
      endif()
      list(APPEND CMAKE_CUDA_ARCHITECTURES ${architecture})
    endforeach()
  elseif(gpu_missing)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90a-real 100a-real 120a-real)
  else()
    # By name: "native" leaves out what only one architecture has, as 9.0 has its tensor cores.
    execute_process(COMMAND ${MXKERN_NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
      OUTPUT_VARIABLE capabilities OUTPUT_STRIP_TRAILING_WHITESPACE)
    string(REGEX MATCHALL "[0-9]+[.][0-9]+" capabilities "${capabilities}")
    list(REMOVE_DUPLICATES capabilities)
    set(CMAKE_CUDA_ARCHITECTURES "")
    foreach(capability IN LISTS capabilities)
      string(REPLACE "." "" number ${capability})
      if(number GREATER_EQUAL 90)
        string(APPEND number a)
      endif()
      list(APPEND CMAKE_CUDA_ARCHITECTURES ${number}-real)
    endforeach()
    if(NOT CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES native)
    endif()
  endif()
  # As a flag: CMake 3.25 does not know that this compiler has C++20, and would leave it out.
  string(APPEND CMAKE_CUDA_FLAGS " -std=c++20")
  set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
  # Static: the library loads where there is no driver, and reports that there are no devices.
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  enable_language(CUDA)
  set(instances ${PROJECT_BINARY_DIR}/instances)
  mxkern_scheme_instances(MXKERN_CUDA_SOURCES ${PROJECT_SOURCE_DIR}/include/mxkern/numerics/scheme.h
    ${instances} quantize fake_quantize decode decode_hopper decode_hopper_half
    decode_grouped decode_grouped_half)
  set(of_bfloat16_too hopper hopper_columns hopper_grouped)
  mxkern_pair_instances(MXKERN_CUDA_SOURCES ${instances} ${of_bfloat16_too} hopper_fused_dispatch)
  mxkern_pair_instance(MXKERN_CUDA_SOURCES ${instances} bfloat16 bfloat16 ${of_bfloat16_too})
  list(JOIN CMAKE_CUDA_ARCHITECTURES ", " architectures)
  set(MXKERN_CUDA_STATUS "CUDA ${CMAKE_CUDA_COMPILER_VERSION} for ${architectures}")
endif()
message(STATUS "mxkern: CUDA: ${MXKERN_CUDA_STATUS}")
