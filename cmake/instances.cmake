# cmake/instances.cmake: files that compile kernels for one scheme each, or for one pair of
# element types, made from the *.in of src/cuda/instances/.

# The schemes of a list, MXKERN_FOR_EACH_SCHEME of a header, as C++ calls them.
function(mxkern_schemes result header)
  file(READ ${header} text)
  string(REGEX MATCHALL "apply\\([A-Za-z0-9_]+\\)" schemes "${text}")
  list(TRANSFORM schemes REPLACE "apply\\((.+)\\)" "\\1")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
  set(${result} ${schemes} PARENT_SCOPE)
endfunction()

# Appends to `result` a file of each scheme of a header's list for each kind that is named.
function(mxkern_scheme_instances result header folder)
  mxkern_schemes(schemes ${header})
  foreach(kind IN LISTS ARGN)
    foreach(SCHEME IN LISTS schemes)
      string(TOLOWER ${SCHEME} name)
      set(file ${folder}/${kind}_${name}.cu)
      configure_file(${PROJECT_SOURCE_DIR}/src/cuda/instances/${kind}.cu.in ${file} @ONLY)
      list(APPEND ${result} ${file})
    endforeach()
  endforeach()
  set(${result} ${${result}} PARENT_SCOPE)
endfunction()

# Appends to `result` a file of a pair of element types for each kind that is named.
function(mxkern_pair_instance result folder LEFT RIGHT)
  foreach(kind IN LISTS ARGN)
    string(TOLOWER ${kind}_${LEFT}_${RIGHT} name)
    set(file ${folder}/${name}.cu)
    configure_file(${PROJECT_SOURCE_DIR}/src/cuda/instances/${kind}.cu.in ${file} @ONLY)
    list(APPEND ${result} ${file})
  endforeach()
  set(${result} ${${result}} PARENT_SCOPE)
endfunction()

# The same for each pair of FP8 formats.
function(mxkern_pair_instances result folder)
  foreach(LEFT E4M3 E5M2)
    foreach(RIGHT E4M3 E5M2)
      mxkern_pair_instance(${result} ${folder} ${LEFT} ${RIGHT} ${ARGN})
    endforeach()
  endforeach()
  set(${result} ${${result}} PARENT_SCOPE)
endfunction()
