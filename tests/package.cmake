# SPDX-License-Identifier: Apache-2.0
# Installs the build tree BUILD into WORK/prefix, builds examples/consumer against it with find_package and by hand with
# pkg-config, examples/c, examples/windows, examples/unr, tests/package/plugins, examples/kernels with nvcc and with clang for HIP, examples/kokkos, and runs what came out. Without
# BUILD it makes one first, of a shared library, with OPTIONS. With PARENT that is one of tests/package/parent, which has the
# library inside. NVCC and CLANG are for GPUs; KOKKOS is where Kokkos' package is.
# Run as: cmake -DBUILD= -DSOURCE= -DWORK= -DC= -DCXX= -DFLAGS= [-DOPTIONS=] [-DPARENT=ON] -DMPI= -DCUDA= -DHIP= -DNVCC= -DCLANG= -DHIP_INCLUDE= -DKOKKOS=
# -P package.cmake
cmake_minimum_required(VERSION 3.25)

function(step)
  list(JOIN ARGN " " line)
  message(STATUS "${line}")
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

set(prefix "${WORK}/prefix")
set(example "${SOURCE}/examples/consumer")
file(REMOVE_RECURSE "${WORK}")
if(PARENT)
  step("${CMAKE_COMMAND}" -S "${SOURCE}/tests/package/parent" -B "${WORK}/parent" -G Ninja "-DSLUICE=${SOURCE}" -DSLUICE_ENABLE_APPS=ON
       "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_CXX_FLAGS=${FLAGS}" ${OPTIONS})
  set(BUILD "${WORK}/parent")
  step("${CMAKE_COMMAND}" --build "${BUILD}")
  file(GLOB_RECURSE run "${BUILD}/sluice-run")
  step(${run} -n 2 "${BUILD}/consumer")
elseif(NOT BUILD)
  set(BUILD "${WORK}/shared")
  step("${CMAKE_COMMAND}" -S "${SOURCE}" -B "${BUILD}" -G Ninja -DBUILD_SHARED_LIBS=ON -DSLUICE_ENABLE_TESTS=OFF
       "-DCMAKE_INSTALL_PREFIX=${prefix}" ${OPTIONS} -DSLUICE_ENABLE_KOKKOS=OFF "-DSLUICE_ENABLE_CUDA=${CUDA}" "-DSLUICE_ENABLE_HIP=${HIP}" "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_CXX_FLAGS=${FLAGS}")
  step("${CMAKE_COMMAND}" --build "${BUILD}")
endif()
step("${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${prefix}")

# file_of(RESULT NAME): the installed file of this name, wherever it is.
function(file_of result name)
  file(STRINGS "${BUILD}/install_manifest.txt" files REGEX "/${name}$")
  list(GET files 0 file)
  set(${result} "${file}" PARENT_SCOPE)
endfunction()
file_of(sluice_run sluice-run)
set(run "${sluice_run}" -n 2)
file_of(config SluiceConfig.cmake)
cmake_path(SET config_prefix NORMALIZE "${config}/../../../..")
set(ENV{CMAKE_PREFIX_PATH} "${prefix}:${config_prefix}")

# Whatever hides symbols, users find the public ones, and nothing else of ours but what sluice_mpi calls.
execute_process(COMMAND "${CMAKE_COMMAND}" -E cat "${BUILD}/install_manifest.txt" OUTPUT_VARIABLE manifest)
if(manifest MATCHES "([^\n]*/libsluice[.]so[.0-9]*)\n")
  execute_process(COMMAND nm -DC --defined-only "${CMAKE_MATCH_1}" OUTPUT_VARIABLE exported COMMAND_ERROR_IS_FATAL ANY)
  if(NOT exported MATCHES "sluice::run\\(" OR NOT exported MATCHES " T sluice_run\n")
    message(FATAL_ERROR "sluice::run or sluice_run is not exported")
  elseif(exported MATCHES "[ \n][TBDRVW] sluice::(device|backends)::[^\n]*")
    message(FATAL_ERROR "the library exports its inside: ${CMAKE_MATCH_0}")
  endif()
endif()

step("${CMAKE_COMMAND}" -S "${example}" -B "${WORK}/build" -G Ninja
     "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_CXX_FLAGS=${FLAGS}" -DCMAKE_CXX_STANDARD=20)
step("${CMAKE_COMMAND}" --build "${WORK}/build" -j 1)
# libfabric is loaded where it is needed, and is no business of a program's.
execute_process(COMMAND ldd "${WORK}/build/consumer" OUTPUT_VARIABLE needed COMMAND_ERROR_IS_FATAL ANY)
if(needed MATCHES "libfabric")
  message(FATAL_ERROR "a program is linked with libfabric:\n${needed}")
endif()
step(${run} "${WORK}/build/consumer")
step(${run} --threads "${WORK}/build/consumer")

step("${CMAKE_COMMAND}" -S "${SOURCE}/examples/c" -B "${WORK}/c" -G Ninja "-DCMAKE_C_COMPILER=${C}" "-DCMAKE_C_FLAGS=${FLAGS} -pedantic -Wall -Wextra -Werror"
     "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_CXX_FLAGS=${FLAGS}")
step("${CMAKE_COMMAND}" --build "${WORK}/c" -j 1)
step(${run} "${WORK}/c/ring")
step(${run} --threads "${WORK}/c/ring")

step("${CMAKE_COMMAND}" -S "${SOURCE}/examples/windows" -B "${WORK}/windows" -G Ninja
     "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_CXX_FLAGS=${FLAGS}" -DCMAKE_CXX_STANDARD=20)
step("${CMAKE_COMMAND}" --build "${WORK}/windows" -j 1)
step(${run} "${WORK}/windows/hash_table")

step("${CMAKE_COMMAND}" -S "${SOURCE}/examples/unr" -B "${WORK}/unr" -G Ninja
     "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_CXX_FLAGS=${FLAGS}" -DCMAKE_CXX_STANDARD=20)
step("${CMAKE_COMMAND}" --build "${WORK}/unr" -j 1)
step(${run} "${WORK}/unr/two_sided_to_plan")

set(for_tsan FALSE)
if(OPTIONS MATCHES "SLUICE_SANITIZER=thread")
  set(for_tsan TRUE)
endif()
set(sanitized "${for_tsan}")
if(FLAGS MATCHES "-fsanitize")
  set(sanitized TRUE)
endif()

if(NOT for_tsan)  # a program without ThreadSanitizer cannot load a plugin with it
  step("${CMAKE_COMMAND}" -S "${SOURCE}/tests/package/plugins" -B "${WORK}/plugins" -G Ninja
       "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_CXX_FLAGS=${FLAGS}" -DCMAKE_CXX_STANDARD=20)
  step("${CMAKE_COMMAND}" --build "${WORK}/plugins" -j 1)
  step(${run} "${WORK}/plugins/host")
endif()

cmake_path(GET sluice_run PARENT_PATH bin)
if(EXISTS "${bin}/life")
  step(${run} "${bin}/life" --pattern "${prefix}/share/sluice/patterns/glider.rle" --verify)
  step(${run} "${bin}/jacobi" -nx 64 -ny 64 -niter 10 --verify)
endif()

# A component that this build does not have must be refused, not passed over; one that it has must be found.
function(check_component component there why)
  file(WRITE "${WORK}/${component}/CMakeLists.txt"
       "cmake_minimum_required(VERSION 3.25)\nproject(Asks LANGUAGES CXX)\n"
       "find_package(Sluice CONFIG REQUIRED COMPONENTS ${component})\n")
  execute_process(COMMAND "${CMAKE_COMMAND}" -S "${WORK}/${component}" -B "${WORK}/${component}/build" -G Ninja
                          "-DCMAKE_CXX_COMPILER=${CXX}"
                  RESULT_VARIABLE status OUTPUT_QUIET ERROR_VARIABLE said)
  string(REGEX REPLACE "[ \n]+" " " said "${said}")
  if(there AND NOT status EQUAL 0)
    message(FATAL_ERROR "find_package refused the component ${component}, which this build has")
  elseif(NOT there AND status EQUAL 0)
    message(FATAL_ERROR "find_package accepted the component ${component}, which this build does not have")
  elseif(NOT there AND NOT said MATCHES "component ${component}: [^.]*${why}")
    message(FATAL_ERROR "find_package does not say why there is no component ${component}: ${said}")
  endif()
endfunction()
check_component(no_such_part FALSE "there are mpi, kokkos")
check_component(cuda "${CUDA}" "SLUICE_ENABLE_CUDA")
check_component(hip "${HIP}" "SLUICE_ENABLE_HIP")
check_component(cabana FALSE "Cabana_ROOT")
check_component(thread_sanitizer "${for_tsan}" "SLUICE_SANITIZER=thread")

find_program(pkg_config pkg-config REQUIRED)
file_of(pc_file sluice.pc)
cmake_path(GET pc_file PARENT_PATH pc_folder)
set(ENV{PKG_CONFIG_PATH} "${pc_folder}")
execute_process(COMMAND "${pkg_config}" --cflags --libs sluice
                OUTPUT_VARIABLE pc_flags OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(pc_flags UNIX_COMMAND "${pc_flags}")
separate_arguments(by_hand UNIX_COMMAND "${FLAGS}")
step("${CXX}" -std=c++20 ${by_hand} "${example}/main.cpp" -o "${WORK}/by_hand" ${pc_flags})
cmake_path(GET pc_folder PARENT_PATH lib_folder)
set(ENV{LD_LIBRARY_PATH} "${lib_folder}:$ENV{LD_LIBRARY_PATH}")  # of use to a shared library only
step(${run} "${WORK}/by_hand")
step("${C}" -std=c99 ${by_hand} -c "${SOURCE}/examples/c/ring.c" -o "${WORK}/ring.o" ${pc_flags})
step("${CXX}" ${by_hand} "${WORK}/ring.o" -o "${WORK}/ring_by_hand" ${pc_flags})
step(${run} "${WORK}/ring_by_hand")

# Programs with kernels start without a driver, and then do without a GPU. The vendors' runtimes know no sanitizer.
if(NOT sanitized)
  set(kernels "${SOURCE}/examples/kernels")
  if(CUDA)
    cmake_path(GET NVCC PARENT_PATH nvcc_folder)
    set(ENV{LIBRARY_PATH} "${nvcc_folder}/../lib:$ENV{LIBRARY_PATH}")  # nvcc of PyPI looks for its libraries in lib64
    step("${CMAKE_COMMAND}" -S "${kernels}" -B "${WORK}/kernels" -G Ninja
         "-DCMAKE_CUDA_COMPILER=${NVCC}" "-DCMAKE_CUDA_HOST_COMPILER=${CXX}" "-DCMAKE_CXX_COMPILER=${CXX}"
         "-DCMAKE_CUDA_ARCHITECTURES=90" "-DCMAKE_CUDA_FLAGS=-Werror all-warnings -Xcompiler=-Wall,-Wextra,-Werror")
    step("${CMAKE_COMMAND}" --build "${WORK}/kernels")
    step(${run} "${WORK}/kernels/ring_sum")
    step(${run} --threads "${WORK}/kernels/ring_sum")
  endif()
  if(HIP)
    step("${CLANG}" -x hip -std=c++20 -O2 -Wall -Wextra -Werror --offload-arch=gfx90a -nogpulib -D__HIP_PLATFORM_AMD__ -idirafter
         "${HIP_INCLUDE}" "${kernels}/ring_sum.cu" -o "${WORK}/ring_sum_hip" ${pc_flags} "-L${HIP_INCLUDE}/../lib" -lamdhip64)
    step(${run} "${WORK}/ring_sum_hip")
    step(${run} --threads "${WORK}/ring_sum_hip")
  endif()
endif()

# Kokkos itself is not built for sanitizers.
if(KOKKOS AND NOT sanitized)
  step("${CMAKE_COMMAND}" -S "${SOURCE}/examples/kokkos" -B "${WORK}/kokkos" -G Ninja
       "-DKokkos_DIR=${KOKKOS}" "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_CXX_FLAGS=${FLAGS}" -DCMAKE_CXX_STANDARD=20)
  step("${CMAKE_COMMAND}" --build "${WORK}/kokkos")
  set(ENV{OMP_NUM_THREADS} 1)
  step(${run} "${WORK}/kokkos/diffusion")
  step(${run} --threads "${WORK}/kokkos/diffusion")
endif()

if(MPI)
  step("${MPI}" -n 2 "${WORK}/build/consumer_mpi")
  step(${run} "${WORK}/build/consumer_mpi")
endif()
