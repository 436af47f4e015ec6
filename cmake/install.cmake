# cmake/install.cmake: headers, library and the CMake package, laid out in two ways.
# Component `development` is the ordinary prefix of `cmake --install`. Component `python` is what a
# wheel holds: the same below mxkern/, found through `python -m mxkern --cmake-dir`.

include(CMakePackageConfigHelpers)

write_basic_package_version_file(mxkernConfigVersion.cmake COMPATIBILITY SameMinorVersion)

function(mxkern_install component prefix libdir)
  set(cmakedir ${prefix}${libdir}/cmake/mxkern)
  install(TARGETS mxkern mxkern_headers EXPORT mxkern_${component}
    LIBRARY DESTINATION ${prefix}${libdir} COMPONENT ${component} ${ARGN}
    INCLUDES DESTINATION ${prefix}include)
  install(DIRECTORY include/mxkern DESTINATION ${prefix}include COMPONENT ${component} ${ARGN})
  install(EXPORT mxkern_${component} NAMESPACE mxkern:: FILE mxkernTargets.cmake
    DESTINATION ${cmakedir} COMPONENT ${component} ${ARGN})
  configure_package_config_file(cmake/mxkernConfig.cmake.in ${component}/mxkernConfig.cmake
    INSTALL_DESTINATION ${cmakedir} NO_SET_AND_CHECK_MACRO)
  install(FILES ${PROJECT_BINARY_DIR}/${component}/mxkernConfig.cmake
                ${PROJECT_BINARY_DIR}/mxkernConfigVersion.cmake
    DESTINATION ${cmakedir} COMPONENT ${component} ${ARGN})
endfunction()

install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development)
mxkern_install(development "" ${CMAKE_INSTALL_LIBDIR})
mxkern_install(python mxkern/ lib EXCLUDE_FROM_ALL)
