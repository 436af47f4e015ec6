# cmake/instruction_sets.cmake: the instruction sets that the CPU backend is compiled for, and the
# compiler flags of each. Objects of one set live in src/cpu/instances/<set>*.cc; a file belongs to
# the first set of all there are whose name its own begins with.

set(mxkern_all_instruction_sets baseline)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  list(PREPEND mxkern_all_instruction_sets amx_bf16 avx512_bf16 avx512 avx2)
endif()
set(MXKERN_INSTRUCTION_SETS "${mxkern_all_instruction_sets}" CACHE STRING
  "Instruction sets of the CPU backend, from best to baseline, which has to be among them")
foreach(set IN LISTS MXKERN_INSTRUCTION_SETS)
  if(NOT set IN_LIST mxkern_all_instruction_sets)
    message(FATAL_ERROR "mxkern: MXKERN_INSTRUCTION_SETS has '${set}'; expected some of "
      "'${mxkern_all_instruction_sets}' on ${CMAKE_SYSTEM_PROCESSOR}")
  endif()
endforeach()
if(NOT "baseline" IN_LIST MXKERN_INSTRUCTION_SETS)
  message(FATAL_ERROR "mxkern: MXKERN_INSTRUCTION_SETS is '${MXKERN_INSTRUCTION_SETS}'; expected "
    "baseline at the end of the list, for machines that have none of the others")
endif()
if(MXKERN_INSTRUCTION_SETS MATCHES "_bf16" AND NOT "avx512" IN_LIST MXKERN_INSTRUCTION_SETS)
  message(FATAL_ERROR "mxkern: MXKERN_INSTRUCTION_SETS is '${MXKERN_INSTRUCTION_SETS}'; expected "
    "avx512 as well, whose code packs the operands of avx512_bf16 and amx_bf16")
endif()

set(MXKERN_FLAGS_baseline "")
set(MXKERN_FLAGS_avx2 -mavx2 -mfma -mf16c -mbmi -mbmi2)
set(MXKERN_FLAGS_avx512 ${MXKERN_FLAGS_avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq
    -mavx512vbmi -mprefer-vector-width=512)
set(MXKERN_FLAGS_avx512_bf16 ${MXKERN_FLAGS_avx512} -mavx512bf16)
set(MXKERN_FLAGS_amx_bf16 ${MXKERN_FLAGS_avx512_bf16} -mamx-tile -mamx-bf16)
