# SPDX-License-Identifier: Apache-2.0
# Programs of MPI, and tests that run them.

# add_mpi_program(NAME SOURCES...)
function(add_mpi_program name)
  add_executable(${name} ${ARGN})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_definitions(${name} PRIVATE MPICH_SKIP_MPICXX OMPI_SKIP_MPICXX)
endfunction()

# add_mpi_objects(NAME SOURCES...): what several programs have in common; each of them has $<TARGET_OBJECTS:NAME>.
function(add_mpi_objects name)
  add_library(${name} OBJECT ${ARGN})
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_definitions(${name} PRIVATE MPICH_SKIP_MPICXX OMPI_SKIP_MPICXX)
  target_link_libraries(${name} PRIVATE MPI::MPI_CXX)
endfunction()

# A program on streams of CUDA's driver. On a machine with a GPU the driver is found where the system has it.
function(add_mpi_program_with_cuda name library)
  add_mpi_program(${name} ${ARGN})
  target_include_directories(${name} SYSTEM PRIVATE "${SLUICE_CUDA_INCLUDE_DIR}")
  target_compile_definitions(${name} PRIVATE WITH_CUDA)
  target_link_libraries(${name} PRIVATE ${library} emucuda MPI::MPI_CXX)
  set_target_properties(${name} PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH_USE_LINK_PATH ON
                                           INSTALL_RPATH "$<TARGET_FILE_DIR:${library}>")
endfunction()

# add_mpi_test(NAME RANKS PROGRAM ARGUMENTS...): a test that passes if the ranks print `passed`.
function(add_mpi_test name ranks)
  add_test(NAME ${name} COMMAND "${MPIEXEC_EXECUTABLE}" ${MPIEXEC_NUMPROC_FLAG} ${ranks} ${ARGN})
  set_tests_properties(${name} PROPERTIES PASS_REGULAR_EXPRESSION "passed\n" LABELS tree TIMEOUT 120 PROCESSORS 2)
endfunction()

# add_mpi_c99_test(FOLDER.PROGRAM SOURCE LIBRARY): compiles the program FOLDER_PROGRAM as C99, and runs it on two ranks.
function(add_mpi_c99_test test source library)
  string(REPLACE "." "_" program ${test})
  add_executable(${program} ${source})
  separate_arguments(flags UNIX_COMMAND "${program_flags}")
  target_compile_options(${program} PRIVATE ${flags})
  target_compile_definitions(${program} PRIVATE MPICH_SKIP_MPICXX OMPI_SKIP_MPICXX)
  target_include_directories(${program} SYSTEM PRIVATE ${MPI_CXX_INCLUDE_DIRS})
  target_link_libraries(${program} PRIVATE ${library} ${MPI_CXX_LIBRARIES})
  set_target_properties(${program} PROPERTIES C_STANDARD 99 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF LINKER_LANGUAGE C)
  add_mpi_test(${test} 2 $<TARGET_FILE:${program}>)
endfunction()
