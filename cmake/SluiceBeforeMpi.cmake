# SPDX-License-Identifier: Apache-2.0
# Shared libraries that a program links, or the loader puts, before MPI. They show the names of an exports.map, and those of streams.

# sluice_add_library_before_mpi(NAME EXPORTS): sluice_NAME and Sluice::NAME, of the objects sluice_NAME_objects and sluice_mpi.
function(sluice_add_library_before_mpi name exports)
  set(library sluice_${name})
  target_include_directories(${library}_objects PRIVATE "${PROJECT_SOURCE_DIR}")
  target_link_libraries(${library}_objects PRIVATE sluice_mpi)
  target_compile_definitions(${library}_objects PRIVATE MPICH_SKIP_MPICXX OMPI_SKIP_MPICXX)
  set_target_properties(${library}_objects PROPERTIES UNITY_BUILD ${SLUICE_UNITY_BUILD} CXX_VISIBILITY_PRESET hidden)

  add_library(${library} SHARED $<TARGET_OBJECTS:${library}_objects>)
  add_library(Sluice::${name} ALIAS ${library})
  target_link_libraries(${library} PRIVATE sluice_mpi ${CMAKE_DL_LIBS})
  # Programs take streams in C from here, since a stream and what uses it are of one copy of Sluice. In an archive their names are hidden.
  if(sluice_type STREQUAL "STATIC_LIBRARY")
    target_sources(${library} PRIVATE "${PROJECT_SOURCE_DIR}/c/error.cpp" "${PROJECT_SOURCE_DIR}/c/stream.cpp")
    target_include_directories(${library} PRIVATE "${PROJECT_SOURCE_DIR}")
    set_target_properties(${library} PROPERTIES CXX_VISIBILITY_PRESET default UNITY_BUILD OFF)
  else()
    target_link_libraries(${library} INTERFACE sluice)
  endif()
  target_link_options(${library} PRIVATE "LINKER:--version-script=${exports}" INTERFACE "LINKER:--no-as-needed")
  target_include_directories(${library} INTERFACE "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
                                                  "$<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>"
                                                  "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  set_target_properties(${library} PROPERTIES EXPORT_NAME ${name} LINK_DEPENDS "${exports}" LINKER_LANGUAGE CXX
                                              LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}" VERSION ${PROJECT_VERSION}
                                              SOVERSION ${PROJECT_VERSION_MAJOR})
endfunction()
