# tests/structure/weak_symbols.cmake: objects of one instruction set define no weak symbols.
# The linker keeps one of several weak definitions, whichever comes first: an inline function that
# was compiled for AVX-512 could so end up in the baseline path. Arguments: NM, OBJECTS.

set(looked_at 0)
set(weak "")
foreach(object IN LISTS OBJECTS)
  if(NOT object MATCHES "/cpu/instances/")
    continue()
  endif()
  math(EXPR looked_at "${looked_at} + 1")
  execute_process(COMMAND ${NM} --defined-only --demangle ${object}
    OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[0-9a-f]+ [WVu] [^\n]+" found "${symbols}")
  foreach(symbol IN LISTS found)
    cmake_path(GET object FILENAME name)
    string(APPEND weak "\n  ${name}: ${symbol}")
  endforeach()
endforeach()

if(looked_at EQUAL 0)
  message(FATAL_ERROR "no object of src/cpu/instances was found among: ${OBJECTS}")
endif()
if(weak)
  message(FATAL_ERROR "weak symbols in objects of one instruction set; make what emits them "
    "always_inline, static, or part of a namespace of that set:${weak}")
endif()
message(STATUS "${looked_at} objects, no weak symbol")
