# cmake/install.cmake: headers, library and the CMake package. In a wheel everything goes into the
# Python package, and the CMake package is found through `python -m mxkern --cmake-dir`.

include(CMakePackageConfigHelpers)

if(SKBUILD)
  set(MXKERN_PREFIX mxkern/)
  set(MXKERN_LIBDIR lib)
else()
  set(MXKERN_PREFIX "")
  set(MXKERN_LIBDIR ${CMAKE_INSTALL_LIBDIR})
endif()
set(MXKERN_CMAKEDIR ${MXKERN_PREFIX}${MXKERN_LIBDIR}/cmake/mxkern)

install(TARGETS mxkern mxkern_headers EXPORT mxkernTargets
  LIBRARY DESTINATION ${MXKERN_PREFIX}${MXKERN_LIBDIR})
install(DIRECTORY include/mxkern DESTINATION ${MXKERN_PREFIX}include)
install(EXPORT mxkernTargets NAMESPACE mxkern:: DESTINATION ${MXKERN_CMAKEDIR})

configure_package_config_file(cmake/mxkernConfig.cmake.in mxkernConfig.cmake
  INSTALL_DESTINATION ${MXKERN_CMAKEDIR} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(mxkernConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/mxkernConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/mxkernConfigVersion.cmake
        DESTINATION ${MXKERN_CMAKEDIR})
