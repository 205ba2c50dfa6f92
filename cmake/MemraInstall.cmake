# Library, header, pkg-config file and CMake package, all relocatable.

include(CMakePackageConfigHelpers)

install(
  TARGETS memra
  EXPORT memra-targets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  INCLUDES DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(FILES "${PROJECT_SOURCE_DIR}/include/memra.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}")
install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}")

set(memra_cmake_dir "${CMAKE_INSTALL_LIBDIR}/cmake/memra")
install(
  EXPORT memra-targets
  NAMESPACE memra::
  DESTINATION "${memra_cmake_dir}")
configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/memra-config.cmake.in" "${PROJECT_BINARY_DIR}/memra-config.cmake"
  INSTALL_DESTINATION "${memra_cmake_dir}")
# The ABI is append-only within a SONAME, so any 0.x serves whoever asks for an older 0.x.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/memra-config-version.cmake"
                                 COMPATIBILITY SameMajorVersion)
install(FILES "${PROJECT_BINARY_DIR}/memra-config.cmake"
              "${PROJECT_BINARY_DIR}/memra-config-version.cmake" DESTINATION "${memra_cmake_dir}")

# The .pc file finds its prefix from its own place; absolute install folders stay as they are.
set(memra_pc_dir "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(MEMRA_PC_PREFIX "${CMAKE_INSTALL_PREFIX}")
  set(MEMRA_PC_LIBDIR "${CMAKE_INSTALL_LIBDIR}")
else()
  file(RELATIVE_PATH memra_pc_up "/prefix/${memra_pc_dir}" "/prefix")
  string(REGEX REPLACE "/$" "" memra_pc_up "${memra_pc_up}")
  set(MEMRA_PC_PREFIX "\${pcfiledir}/${memra_pc_up}")
  set(MEMRA_PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
endif()
if(IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(MEMRA_PC_INCLUDEDIR "${CMAKE_INSTALL_INCLUDEDIR}")
else()
  set(MEMRA_PC_INCLUDEDIR "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
configure_file("${PROJECT_SOURCE_DIR}/pkgconfig/memra.pc.in" "${PROJECT_BINARY_DIR}/memra.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/memra.pc" DESTINATION "${memra_pc_dir}")
