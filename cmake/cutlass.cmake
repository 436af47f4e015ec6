# cmake/cutlass.cmake: whether the block-scaled kernels of Blackwell are built, which need CUTLASS's
# headers at build time, and if not, why. Each architecture is a target of its own: its kernels
# compile for nothing else. Sets MXKERN_CUTLASS_STATUS, one clause for people, and
# mxkern_blackwell_targets.

if(NOT MXKERN_CUTLASS MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "mxkern: MXKERN_CUTLASS is '${MXKERN_CUTLASS}'; expected AUTO, ON or OFF")
endif()

set(MXKERN_CUTLASS_STATUS "")
set(mxkern_blackwell_architectures "")
set(mxkern_blackwell_targets "")
foreach(architecture 100 120)
  if("${CMAKE_CUDA_ARCHITECTURES}" MATCHES "(^|;)${architecture}a(-real)?(;|$)")
    list(APPEND mxkern_blackwell_architectures ${architecture})
  endif()
endforeach()

if(MXKERN_CUTLASS STREQUAL "OFF")
  set(MXKERN_CUTLASS_STATUS "built with MXKERN_CUTLASS=OFF")
elseif(NOT MXKERN_CUDA_SOURCES)
  set(MXKERN_CUTLASS_STATUS "this build has no CUDA kernels")
elseif(NOT mxkern_blackwell_architectures)
  set(MXKERN_CUTLASS_STATUS "built neither for sm_100a nor for sm_120a")
else()
  find_package(Cutlass)
  if(NOT Cutlass_FOUND)
    set(MXKERN_CUTLASS_STATUS "CUTLASS's headers were not found at build time")
  endif()
endif()

if(MXKERN_CUTLASS_STATUS)
  if(MXKERN_CUTLASS STREQUAL "ON")
    message(FATAL_ERROR "mxkern: MXKERN_CUTLASS=ON, but ${MXKERN_CUTLASS_STATUS}; use "
      "MXKERN_CUTLASS=OFF, or MXKERN_CUDA=ON with MXKERN_CUDA_ARCHITECTURES=100a-real (or "
      "120a-real) and `pip install --no-deps nvidia-cutlass==4.2.0.0`")
  endif()
else()
  foreach(architecture IN LISTS mxkern_blackwell_architectures)
    set(target mxkern_sm${architecture})
    file(GLOB instances CONFIGURE_DEPENDS
         ${PROJECT_SOURCE_DIR}/src/cuda/instances/multiply_sm${architecture}_*.cu)
    add_library(${target} OBJECT ${instances})
    set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES ${architecture}a-real)
    target_link_libraries(${target} PRIVATE mxkern_headers Cutlass::Cutlass)
    target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_compile_options(${target} PRIVATE --expt-relaxed-constexpr)
    list(APPEND mxkern_blackwell_targets ${target})
  endforeach()
  list(TRANSFORM mxkern_blackwell_architectures REPLACE "(.+)" "sm_\\1a" OUTPUT_VARIABLE names)
  list(JOIN names " and " names)
  set(MXKERN_CUTLASS_STATUS "CUTLASS ${Cutlass_VERSION} for ${names}, compiled and never executed")
endif()
message(STATUS "mxkern: block-scaled kernels of Blackwell: ${MXKERN_CUTLASS_STATUS}")
