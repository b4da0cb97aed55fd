# SPDX-License-Identifier: Apache-2.0
# Compiles each header of the interface for C by itself, as C99 and as C++11, without a warning; but for the one for MPI, which a
# program of tests/mpi_rma in C99 includes.
# Run as: cmake -DC= -DCXX= -DSOURCE= -DBUILD= -P header.cmake
cmake_minimum_required(VERSION 3.25)

file(GLOB headers "${SOURCE}/include/sluice/*.h" "${SOURCE}/include/sluice/c/*.h")
list(REMOVE_ITEM headers "${SOURCE}/include/sluice/mpi_rma.h")
if(NOT headers)
  message(FATAL_ERROR "no headers in ${SOURCE}/include")
endif()
set(flags -pedantic -Wall -Wextra -Werror -fsyntax-only "-I${SOURCE}/include" "-I${BUILD}/include")
foreach(header IN LISTS headers)
  execute_process(COMMAND "${C}" -x c -std=c99 ${flags} "${header}" COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND "${CXX}" -x c++ -std=c++11 ${flags} "${header}" COMMAND_ERROR_IS_FATAL ANY)
  message(STATUS "${header}")
endforeach()
