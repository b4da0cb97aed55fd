# SPDX-License-Identifier: Apache-2.0
# The options, each ON, OFF or AUTO (what is found), and a line each that says what was chosen and why.

# Declares SLUICE_ENABLE_<name>, and sets it to ON or OFF here. NEEDS are variables that are true if what it needs is there.
# ON with something missing ends the configuration. FOUND says what was found.
function(sluice_option name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "HELP;DEFAULT;FOUND" "NEEDS")
  set(missing "")
  foreach(need IN LISTS arg_NEEDS)
    if(NOT ${need})
      string(REGEX REPLACE "_FOUND$" "" need "${need}")
      list(APPEND missing "${need}")
    endif()
  endforeach()
  list(JOIN missing ", " missing)

  if(NOT arg_DEFAULT)
    set(arg_DEFAULT AUTO)
  endif()
  set(SLUICE_ENABLE_${name} ${arg_DEFAULT} CACHE STRING "${arg_HELP}: ON, OFF, or AUTO for what is found")
  set_property(CACHE SLUICE_ENABLE_${name} PROPERTY STRINGS AUTO ON OFF)
  set(asked "${SLUICE_ENABLE_${name}}")

  set(chosen OFF)
  if(asked STREQUAL "AUTO" AND missing)
    message(STATUS "Sluice: ${name}: no (missing: ${missing})")
  elseif(asked AND missing)
    message(FATAL_ERROR "Sluice: SLUICE_ENABLE_${name}=${asked}, but missing: ${missing}")
  elseif(asked OR asked STREQUAL "AUTO")
    set(chosen ON)
    set(found "")
    if(arg_FOUND)
      set(found " (${arg_FOUND})")
    endif()
    message(STATUS "Sluice: ${name}: yes${found}")
  else()
    message(STATUS "Sluice: ${name}: no (switched off)")
  endif()
  set(SLUICE_ENABLE_${name} ${chosen} PARENT_SCOPE)
endfunction()

# A package from the source folder that SLUICE_SOURCE_<package> names: a tree of its own, or headers alone.
function(sluice_take_source package target)
  set(folder "${SLUICE_SOURCE_${package}}")
  if(EXISTS "${folder}/CMakeLists.txt")
    add_subdirectory("${folder}" "${PROJECT_BINARY_DIR}/_deps/${package}" EXCLUDE_FROM_ALL SYSTEM)
  else()
    add_library(${target} INTERFACE IMPORTED GLOBAL)
    target_include_directories(${target} INTERFACE "${folder}")
    target_compile_definitions(${target} INTERFACE FMT_HEADER_ONLY)  # of the packages, fmt alone has more than headers
  endif()
endfunction()

# sluice_find(OPTION PACKAGE TARGET ARGS...): a package that an option needs; not looked for if the option is off. It may be there
# already (a project that has both as subfolders).
macro(sluice_find name package target)
  if(NOT DEFINED SLUICE_ENABLE_${name} OR SLUICE_ENABLE_${name} OR "${SLUICE_ENABLE_${name}}" STREQUAL "AUTO")
    if(SLUICE_SOURCE_${package} AND NOT TARGET ${target})
      sluice_take_source(${package} ${target})
    endif()
    if(TARGET ${target})
      set(${package}_FOUND TRUE)
    else()
      find_package(${package} ${ARGN} QUIET)
    endif()
  endif()
endmacro()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

set(MPI_CXX_SKIP_MPICXX TRUE)  # the C bindings only
sluice_find(MPI MPI MPI::MPI_CXX COMPONENTS CXX)
sluice_option(MPI HELP "Start through MPI, and contexts on a communicator" NEEDS MPI_FOUND)

if(NOT DEFINED SLUICE_ENABLE_OFI OR SLUICE_ENABLE_OFI OR SLUICE_ENABLE_OFI STREQUAL "AUTO")
  find_package(PkgConfig QUIET)
  if(PkgConfig_FOUND)
    pkg_check_modules(libfabric QUIET IMPORTED_TARGET libfabric>=1.17)
    pkg_check_modules(hwloc QUIET IMPORTED_TARGET hwloc>=2.1)
  endif()
endif()
sluice_option(OFI HELP "Networks through libfabric" NEEDS libfabric_FOUND)
sluice_option(HWLOC HELP "The nearest network devices first" NEEDS hwloc_FOUND SLUICE_ENABLE_OFI)

# `./dev` installs there what Debian 12 does not have.
set(sluice_cache "$ENV{HOME}/.cache/sluice")
if(NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
  set(sluice_cache "$ENV{XDG_CACHE_HOME}/sluice")
endif()
# Debian 12 has Kokkos 3.4, which the version asked for keeps out.
include(SluiceKokkos)
sluice_find(KOKKOS Kokkos Kokkos::kokkos 4.5 COMPONENTS separable_compilation HINTS "${sluice_cache}/kokkos-4.7.0")
sluice_option(KOKKOS HELP "Applications on Kokkos" NEEDS Kokkos_FOUND FOUND "${Kokkos_DEVICES}")

include(SluiceKernels)
if(NOT DEFINED SLUICE_ENABLE_CUDA OR SLUICE_ENABLE_CUDA OR SLUICE_ENABLE_CUDA STREQUAL "AUTO")
  sluice_find_cuda()
endif()
sluice_option(CUDA HELP "NVIDIA GPUs" NEEDS "nvcc 12.0_FOUND" cuda.h_FOUND FOUND "${SLUICE_CUDA_SUMMARY}")
if(NOT DEFINED SLUICE_ENABLE_HIP OR SLUICE_ENABLE_HIP OR SLUICE_ENABLE_HIP STREQUAL "AUTO")
  sluice_find_hip()
endif()
sluice_option(HIP HELP "AMD GPUs" NEEDS "clang 15 with its lld, clang-offload-bundler and llvm-objcopy_FOUND"
              hip/hip_runtime_api.h_FOUND FOUND "${SLUICE_HIP_SUMMARY}")

# A project that adds Sluice as a subfolder gets the library alone, unless it asks.
set(sluice_extras AUTO)
if(NOT PROJECT_IS_TOP_LEVEL)
  set(sluice_extras OFF)
endif()
sluice_find(APPS CLI11 CLI11::CLI11)
sluice_find(APPS fmt fmt::fmt)
sluice_find(APPS nlohmann_json nlohmann_json::nlohmann_json)
sluice_find(APPS PNG PNG::PNG)
set(sluice_pictures "with libpng")
if(NOT TARGET PNG::PNG)
  set(sluice_pictures "no pictures: libpng is missing")
endif()
sluice_option(APPS HELP "Applications, benchmarks and command-line programs" DEFAULT ${sluice_extras}
              NEEDS CLI11_FOUND fmt_FOUND nlohmann_json_FOUND FOUND "${sluice_pictures}")
sluice_find(TESTS GTest GTest::gtest_main)
sluice_option(TESTS HELP "Tests" DEFAULT ${sluice_extras} NEEDS GTest_FOUND)
