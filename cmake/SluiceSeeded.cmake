# SPDX-License-Identifier: Apache-2.0
# The library once more, with the bugs that tests/seeded.py switches on one at a time (base/seeded.hpp). For tests only.

get_target_property(sluice_sources sluice SOURCES)
add_library(sluice_seeded STATIC EXCLUDE_FROM_ALL ${sluice_sources})
target_compile_definitions(sluice_seeded PUBLIC SLUICE_SEEDED_BUGS=1 PRIVATE "SLUICE_VERSION=\"${PROJECT_VERSION}\"")
target_include_directories(sluice_seeded PUBLIC "${PROJECT_SOURCE_DIR}/include" PRIVATE "${PROJECT_SOURCE_DIR}")
target_link_libraries(sluice_seeded PUBLIC Threads::Threads)
if(SLUICE_ENABLE_OFI)
  target_compile_definitions(sluice_seeded PRIVATE SLUICE_HAS_OFI)
  target_include_directories(sluice_seeded SYSTEM PRIVATE ${libfabric_INCLUDE_DIRS})
  target_link_libraries(sluice_seeded PRIVATE ${CMAKE_DL_LIBS})
endif()
sluice_use_gpus(sluice_seeded)
add_dependencies(sluice_seeded sluice_kernels)
if(SLUICE_ENABLE_HWLOC)
  target_link_libraries(sluice_seeded PRIVATE PkgConfig::hwloc)
endif()
