# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` lays down: libraries, headers, programs, the CMake package and pkg-config files.

include(CMakePackageConfigHelpers)
set(SLUICE_CMAKE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/Sluice")

# CMake 3.25 exports a file set with an absolute folder as if that were in the prefix.
file(RELATIVE_PATH sluice_headers "${CMAKE_INSTALL_PREFIX}" "${CMAKE_INSTALL_FULL_INCLUDEDIR}")

# The MPI part is exported apart, so that the package works where MPI is missing and nobody asks for that component.
install(TARGETS sluice EXPORT SluiceTargets FILE_SET HEADERS DESTINATION "${sluice_headers}")
install(EXPORT SluiceTargets NAMESPACE Sluice:: DESTINATION "${SLUICE_CMAKE_DIR}")
if(SLUICE_ENABLE_HEAP)
  install(TARGETS sluice_heap EXPORT SluiceTargets)
endif()
if(SLUICE_ENABLE_MPI)
  set_target_properties(sluice_mpi PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS sluice_mpi EXPORT SluiceMpiTargets FILE_SET HEADERS DESTINATION "${sluice_headers}")
  set_target_properties(sluice_mpi_rma PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS sluice_mpi_rma EXPORT SluiceMpiTargets)
  set_target_properties(sluice_mpis PROPERTIES INSTALL_RPATH "$ORIGIN")
  install(TARGETS sluice_mpis EXPORT SluiceMpiTargets)
  install(EXPORT SluiceMpiTargets NAMESPACE Sluice:: DESTINATION "${SLUICE_CMAKE_DIR}")
endif()

# Installed programs find a shared library from where they are, wherever the installation is moved; where one of the two folders is an
# absolute path, nothing moves.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_BINDIR}")
  set(sluice_rpath "${CMAKE_INSTALL_FULL_LIBDIR}")
else()
  file(RELATIVE_PATH sluice_rpath "/${CMAKE_INSTALL_BINDIR}" "/${CMAKE_INSTALL_LIBDIR}")
  string(PREPEND sluice_rpath "$ORIGIN/")
endif()
foreach(program sluice-run sluice-info sluice-bench jacobi faces heat life cg fft channel_flow)
  if(TARGET ${program})
    # A shared Kokkos or MPI need not be where the loader looks.
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "${sluice_rpath}" INSTALL_RPATH_USE_LINK_PATH ON)
    install(TARGETS ${program})
  endif()
endforeach()
if(TARGET life)
  install(DIRECTORY apps/life/patterns DESTINATION "${CMAKE_INSTALL_DATADIR}/sluice" FILES_MATCHING PATTERN "*.rle")
endif()

# Who links an archive links what it uses; a shared library brings that itself. libfabric and GPU
# drivers are loaded, not linked.
set(SLUICE_LINKS_HWLOC OFF)
set(SLUICE_PC_REQUIRES "")
if(SLUICE_ENABLE_HWLOC AND sluice_type STREQUAL "STATIC_LIBRARY")
  set(SLUICE_LINKS_HWLOC ON)
  set(SLUICE_PC_REQUIRES "hwloc")
endif()
set(SLUICE_PC_LIBS "")
if(CMAKE_DL_LIBS)
  set(SLUICE_PC_LIBS "-l${CMAKE_DL_LIBS}")
endif()

set(SLUICE_SANITIZES_THREADS OFF)
if(SLUICE_SANITIZER STREQUAL "thread")
  set(SLUICE_SANITIZES_THREADS ON)
endif()

configure_package_config_file(cmake/SluiceConfig.cmake.in "${PROJECT_BINARY_DIR}/SluiceConfig.cmake"
                              INSTALL_DESTINATION "${SLUICE_CMAKE_DIR}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/SluiceConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/SluiceConfig.cmake" "${PROJECT_BINARY_DIR}/SluiceConfigVersion.cmake"
        DESTINATION "${SLUICE_CMAKE_DIR}")

# Relative to the .pc file's own folder, so that an installation may be moved; absolute paths stay what they are.
set(SLUICE_PC_PREFIX "${CMAKE_INSTALL_PREFIX}")
if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  file(RELATIVE_PATH SLUICE_PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
  string(PREPEND SLUICE_PC_PREFIX "\${pcfiledir}/")
endif()
foreach(folder LIBDIR INCLUDEDIR)
  cmake_path(ABSOLUTE_PATH CMAKE_INSTALL_${folder} BASE_DIRECTORY "\${prefix}" OUTPUT_VARIABLE SLUICE_PC_${folder})
endforeach()
set(SLUICE_PC_CFLAGS "")
if(sluice_type STREQUAL "STATIC_LIBRARY")
  set(SLUICE_PC_CFLAGS "-DSLUICE_STATIC_DEFINE")
endif()
if(SLUICE_SANITIZER STREQUAL "thread")
  string(APPEND SLUICE_PC_CFLAGS " -fsanitize=thread")
  string(APPEND SLUICE_PC_LIBS " -fsanitize=thread")
endif()
configure_file(packaging/sluice.pc.in "${PROJECT_BINARY_DIR}/sluice.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/sluice.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
if(SLUICE_ENABLE_MPI)
  configure_file(packaging/sluice-mpi.pc.in "${PROJECT_BINARY_DIR}/sluice-mpi.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/sluice-mpi.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endif()
