# cmake/instruction_sets.cmake: the instruction sets that the CPU backend is compiled for, and the
# compiler flags of each. Objects of one set live in src/cpu/instances/<set>*.cc.

set(MXKERN_INSTRUCTION_SETS baseline)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(APPEND MXKERN_INSTRUCTION_SETS avx2 avx512)
endif()

set(MXKERN_FLAGS_baseline "")
set(MXKERN_FLAGS_avx2 -mavx2 -mfma -mf16c -mbmi -mbmi2)
set(MXKERN_FLAGS_avx512 ${MXKERN_FLAGS_avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq
    -mavx512vbmi -mprefer-vector-width=512)
