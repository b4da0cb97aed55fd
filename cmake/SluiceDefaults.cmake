# SPDX-License-Identifier: Apache-2.0
# What holds for every target of this tree. A project that adds Sluice as a subfolder keeps its own build type and warnings.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug, ..." FORCE)
  endif()
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  # Sign conversions are left out: sizes and counts meet signed ranks and MPI counts everywhere.
  add_compile_options(-Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion)
  # g++ 12 sees overlaps and overflows inside std::string and std::vector that are not there (its bugs 105329, 105651).
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    add_compile_options(-Wno-restrict -Wno-stringop-overflow -Wno-array-bounds)
  endif()
endif()
