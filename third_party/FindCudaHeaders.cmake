# third_party/FindCudaHeaders.cmake: the CUDA toolkit's headers for host code, without its compiler.
# Gives CudaHeaders::CudaHeaders. Looks beside nvcc, in the usual places, and in PyPI's packages
# (`pip install "cuda-toolkit[cudart,cccl]==13.*"` for the Python in use).

find_program(CudaHeaders_NVCC nvcc)
mark_as_advanced(CudaHeaders_NVCC)
set(mxkern_cuda_hints $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda)
if(CudaHeaders_NVCC)
  file(REAL_PATH ${CudaHeaders_NVCC} mxkern_nvcc)
  cmake_path(GET mxkern_nvcc PARENT_PATH mxkern_nvcc)
  list(PREPEND mxkern_cuda_hints ${mxkern_nvcc}/..)
endif()
find_package(Python 3 QUIET COMPONENTS Interpreter)
if(Python_EXECUTABLE)
  execute_process(COMMAND ${Python_EXECUTABLE} -c
    "import sysconfig; print(sysconfig.get_path('purelib') + '/nvidia/cu13')"
    OUTPUT_VARIABLE mxkern_pypi_cuda OUTPUT_STRIP_TRAILING_WHITESPACE)
  list(APPEND mxkern_cuda_hints ${mxkern_pypi_cuda})
endif()

find_path(CudaHeaders_INCLUDE_DIR cuda_fp4.h HINTS ${mxkern_cuda_hints} PATH_SUFFIXES include)
find_path(CudaHeaders_CCCL_DIR cuda/std/type_traits HINTS ${mxkern_cuda_hints}
  PATH_SUFFIXES include/cccl include)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CudaHeaders
  REQUIRED_VARS CudaHeaders_INCLUDE_DIR CudaHeaders_CCCL_DIR)
if(CudaHeaders_FOUND AND NOT TARGET CudaHeaders::CudaHeaders)
  add_library(CudaHeaders::CudaHeaders INTERFACE IMPORTED)
  target_include_directories(CudaHeaders::CudaHeaders SYSTEM INTERFACE
    ${CudaHeaders_INCLUDE_DIR} ${CudaHeaders_CCCL_DIR})
endif()
