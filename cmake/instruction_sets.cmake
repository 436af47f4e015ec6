# cmake/instruction_sets.cmake: the instruction sets that the CPU backend is compiled for, and the
# compiler flags of each. Objects of one set live in src/cpu/instances/<set>*.cc; a file belongs to
# the first set of all there are whose name its own begins with. Sets with all kernels have the
# files besides that *.in of that folder make.

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

set(mxkern_whole_instruction_sets baseline avx2 avx512)
set(MXKERN_FLAGS_baseline "")
set(MXKERN_FLAGS_avx2 -mavx2 -mfma -mf16c -mbmi -mbmi2)
set(MXKERN_FLAGS_avx512 ${MXKERN_FLAGS_avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq
    -mavx512vbmi -mprefer-vector-width=512)
set(MXKERN_FLAGS_avx512_bf16 ${MXKERN_FLAGS_avx512} -mavx512bf16)
set(MXKERN_FLAGS_amx_bf16 ${MXKERN_FLAGS_avx512_bf16} -mamx-tile -mamx-bf16)

# Adds the objects of every set to a target of the calling folder; source_dir: that of the library.
function(mxkern_add_instances target source_dir)
  set(optimization -O3)
  # What -O3 unrolls takes minutes to instrument, and a minute to compile for nothing. Pointers that
  # wrap take half of those minutes; that they are used, AddressSanitizer reports.
  if(MXKERN_SANITIZE)
    set(optimization -O1 -fno-sanitize=pointer-overflow)
  elseif(CMAKE_BUILD_TYPE STREQUAL "Debug")
    set(optimization -O1)
  endif()

  set(placed none)
  foreach(set IN LISTS mxkern_all_instruction_sets)
    file(GLOB objects CONFIGURE_DEPENDS ${source_dir}/cpu/instances/${set}*.cc)
    list(REMOVE_ITEM objects ${placed})
    list(APPEND placed ${objects})
    if(NOT set IN_LIST MXKERN_INSTRUCTION_SETS)
      continue()
    endif()
    if(set IN_LIST mxkern_whole_instruction_sets)
      foreach(kind kernels gemm any)
        set(object ${CMAKE_CURRENT_BINARY_DIR}/cpu/instances/${set}_${kind}.cc)
        configure_file(${source_dir}/cpu/instances/${kind}.cc.in ${object} @ONLY)
        list(APPEND objects ${object})
      endforeach()
    endif()
    target_sources(${target} PRIVATE ${objects})
    # GCC 12 takes the deliberately undefined registers of its own intrinsics for a mistake.
    set_source_files_properties(${objects} PROPERTIES
      COMPILE_OPTIONS
      "${MXKERN_FLAGS_${set}};${optimization};$<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>"
      COMPILE_DEFINITIONS "MXKERN_INSTRUCTION_SET=${set}"
      SKIP_PRECOMPILE_HEADERS ON)  # which are of other options
    target_compile_definitions(${target} PRIVATE MXKERN_HAS_${set})
  endforeach()
endfunction()
