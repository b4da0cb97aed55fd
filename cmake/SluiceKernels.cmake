# SPDX-License-Identifier: Apache-2.0
# GPU kernels: who compiles them, and how they get into the library. CMake's own languages CUDA and HIP are not used: kernels are
# images here, which the library carries and loads by itself, so that it links no vendor's runtime, and one build has both.

set(sluice_cuda_defaults "75-virtual;80-real;90-real;100-real")
set(SLUICE_CUDA_ARCHITECTURES "${sluice_cuda_defaults}"
    CACHE STRING "Compute capabilities: N-real for code, N-virtual for PTX, which drivers compile for newer GPUs")
set(sluice_hip_defaults "gfx90a;gfx942")
set(SLUICE_HIP_ARCHITECTURES "${sluice_hip_defaults}"
    CACHE STRING "AMD targets; of the default ones, those that the compiler knows")

# Whether this nvcc is new enough: the first that knows C++20 is that of CUDA 12.
function(sluice_can_cuda result nvcc)
  execute_process(COMMAND "${nvcc}" --version OUTPUT_VARIABLE said ERROR_QUIET)
  string(REGEX MATCH "V([0-9]+[.][0-9.]+)" matched "${said}")
  if(NOT CMAKE_MATCH_1 VERSION_GREATER_EQUAL 12.0)
    set(${result} FALSE PARENT_SCOPE)
  endif()
  set(nvcc_version "${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()

# Looks for nvcc and cuda.h; sets what the option CUDA needs, and SLUICE_CUDA_SUMMARY for the line that says what was found.
function(sluice_find_cuda)
  find_program(SLUICE_NVCC NAMES $ENV{CUDACXX} nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH
               PATHS /usr/local/cuda "${sluice_cache}/cuda-13.0" PATH_SUFFIXES bin VALIDATOR sluice_can_cuda
               DOC "Compiler of CUDA kernels")
  set(works TRUE)
  sluice_can_cuda(works "${SLUICE_NVCC}")
  set(SLUICE_CUDA_COMPILER_FOUND ${works} PARENT_SCOPE)
  set(SLUICE_CUDA_COMPILER_TEXT "nvcc 12.0 or newer" PARENT_SCOPE)
  set(SLUICE_NVCC_VERSION "${nvcc_version}" PARENT_SCOPE)

  file(REAL_PATH "${SLUICE_NVCC}" real)
  cmake_path(GET real PARENT_PATH folder)
  find_path(SLUICE_CUDA_INCLUDE_DIR cuda.h HINTS "${folder}/../include" "${folder}/../targets/x86_64-linux/include"
            DOC "The folder of cuda.h")
  if(SLUICE_CUDA_INCLUDE_DIR)
    set(cuda.h_FOUND TRUE PARENT_SCOPE)
  endif()

  if(nvcc_version VERSION_LESS 12.8 AND SLUICE_CUDA_ARCHITECTURES STREQUAL sluice_cuda_defaults)
    list(REMOVE_ITEM SLUICE_CUDA_ARCHITECTURES 100-real)  # which 12.8 was the first to know
    set(SLUICE_CUDA_ARCHITECTURES "${SLUICE_CUDA_ARCHITECTURES}" PARENT_SCOPE)
  endif()
  list(JOIN SLUICE_CUDA_ARCHITECTURES " " architectures)
  set(SLUICE_CUDA_SUMMARY "${SLUICE_NVCC} ${nvcc_version} for ${architectures}" PARENT_SCOPE)
endfunction()

# How clang makes a bundle of code objects, one per architecture. The kernels use no header and no library of HIP's.
set(sluice_hip_flags -x hip --cuda-device-only --gpu-bundle-output -nogpuinc -nogpulib)

# Whether this clang can: it must know the architectures, and have a linker and a bundler beside it.
function(sluice_can_hip result clang)
  list(TRANSFORM SLUICE_HIP_ARCHITECTURES PREPEND --offload-arch= OUTPUT_VARIABLE architectures)
  execute_process(COMMAND "${clang}" ${sluice_hip_flags} ${architectures} /dev/null -o "${PROJECT_BINARY_DIR}/can_hip.hipfb"
                  RESULT_VARIABLE status OUTPUT_QUIET ERROR_QUIET)
  if(NOT status EQUAL 0)
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()

macro(sluice_find_clang)
  set(versions "")
  foreach(version RANGE 22 15 -1)
    list(APPEND versions clang++-${version})
  endforeach()
  find_program(SLUICE_HIP_CLANG NAMES $ENV{HIPCXX} amdclang++ ${versions} clang++ HINTS ENV ROCM_PATH PATHS /opt/rocm
               PATH_SUFFIXES llvm/bin bin VALIDATOR sluice_can_hip DOC "clang that compiles HIP kernels")
  set(works TRUE)
  sluice_can_hip(works "${SLUICE_HIP_CLANG}")
endmacro()

# Looks for a clang and HIP's headers; sets what the option HIP needs, and SLUICE_HIP_SUMMARY. hipcc is not looked for: it would
# call such a clang.
function(sluice_find_hip)
  sluice_find_clang()
  if(NOT works AND SLUICE_HIP_ARCHITECTURES STREQUAL sluice_hip_defaults)
    set(SLUICE_HIP_ARCHITECTURES gfx90a)  # clang 17 was the first to know gfx942
    sluice_find_clang()
    set(SLUICE_HIP_ARCHITECTURES gfx90a PARENT_SCOPE)
  endif()
  set(SLUICE_HIP_COMPILER_FOUND ${works} PARENT_SCOPE)
  set(SLUICE_HIP_COMPILER_TEXT "clang 15 or newer with its lld, clang-offload-bundler and llvm-objcopy" PARENT_SCOPE)
  find_path(SLUICE_HIP_INCLUDE_DIR hip/hip_runtime_api.h HINTS ENV ROCM_PATH ENV HIP_PATH PATHS /opt/rocm
            PATH_SUFFIXES include DOC "The folder above hip/hip_runtime_api.h")
  if(SLUICE_HIP_INCLUDE_DIR)
    set(hip/hip_runtime_api.h_FOUND TRUE PARENT_SCOPE)
  endif()
  list(JOIN SLUICE_HIP_ARCHITECTURES " " architectures)
  set(SLUICE_HIP_SUMMARY "${SLUICE_HIP_CLANG} for ${architectures}" PARENT_SCOPE)
endfunction()

# A source with what is in FILE, for `std::span<const std::byte> sluice::device::FUNCTION()`.
function(sluice_embed file function)
  add_custom_command(
    OUTPUT "${file}.cpp"
    COMMAND "${CMAKE_COMMAND}" "-DFILE=${file}" "-DFUNCTION=${function}" -P "${PROJECT_SOURCE_DIR}/cmake/SluiceEmbed.cmake"
    DEPENDS "${file}" "${PROJECT_SOURCE_DIR}/cmake/SluiceEmbed.cmake"
    COMMENT "Embedding ${file}"
    VERBATIM)
endfunction()

# The same without bytes, for a part that this build does not have.
function(sluice_embed_nothing source function)
  file(CONFIGURE OUTPUT "${source}" @ONLY CONTENT "#include <cstddef>
#include <span>

namespace sluice::device {
std::span<const std::byte> @function@() noexcept { return {}; }
}
")
endfunction()

# sluice_embed_kernels(TARGET SOURCE): SOURCE, compiled for the GPUs of this build, becomes part of TARGET, where
# sluice::device::cuda_NAME() and hip_NAME() give its images. A target that shares the sources of TARGET depends on TARGET_kernels.
function(sluice_embed_kernels target source)
  cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}")
  cmake_path(GET source STEM name)
  set(common -O3 -std=c++20 "-I${PROJECT_SOURCE_DIR}" "-I${PROJECT_SOURCE_DIR}/include")
  set(embedded "")
  if(SLUICE_ENABLE_CUDA)
    set(image "${CMAKE_CURRENT_BINARY_DIR}/${name}.fatbin")
    set(architectures "")
    foreach(architecture IN LISTS SLUICE_CUDA_ARCHITECTURES)
      string(REGEX REPLACE "-.*" "" number "${architecture}")
      set(kind sm)
      if(architecture MATCHES "-virtual$")
        set(kind compute)
      endif()
      list(APPEND architectures -gencode "arch=compute_${number},code=${kind}_${number}")
    endforeach()
    add_custom_command(
      OUTPUT "${image}"
      COMMAND "${SLUICE_NVCC}" -fatbin --no-compress -ccbin "${CMAKE_CXX_COMPILER}" ${common} ${architectures} -MD -MF
              "${image}.d" -MT "${image}" "${source}" -o "${image}"
      DEPENDS "${source}" "${SLUICE_NVCC}"
      DEPFILE "${image}.d"
      COMMENT "Compiling ${name} for CUDA: ${SLUICE_CUDA_ARCHITECTURES}"
      VERBATIM)
    sluice_embed("${image}" cuda_${name})
    list(APPEND embedded "${image}.cpp")
  else()
    sluice_embed_nothing("${CMAKE_CURRENT_BINARY_DIR}/${name}_without_cuda.cpp" cuda_${name})
    list(APPEND embedded "${CMAKE_CURRENT_BINARY_DIR}/${name}_without_cuda.cpp")
  endif()
  if(SLUICE_ENABLE_HIP)
    set(image "${CMAKE_CURRENT_BINARY_DIR}/${name}.hipfb")
    list(TRANSFORM SLUICE_HIP_ARCHITECTURES PREPEND --offload-arch= OUTPUT_VARIABLE architectures)
    add_custom_command(
      OUTPUT "${image}"
      COMMAND "${SLUICE_HIP_CLANG}" ${sluice_hip_flags} ${common} -Wall -Wextra ${architectures} -MD -MF "${image}.d" -MT
              "${image}" "${source}" -o "${image}"
      DEPENDS "${source}" "${SLUICE_HIP_CLANG}"
      DEPFILE "${image}.d"
      COMMENT "Compiling ${name} for HIP: ${SLUICE_HIP_ARCHITECTURES}"
      VERBATIM)
    sluice_embed("${image}" hip_${name})
    list(APPEND embedded "${image}.cpp")
  else()
    sluice_embed_nothing("${CMAKE_CURRENT_BINARY_DIR}/${name}_without_hip.cpp" hip_${name})
    list(APPEND embedded "${CMAKE_CURRENT_BINARY_DIR}/${name}_without_hip.cpp")
  endif()
  # The target may be of another folder, whose build files know these sources, but not how they are made.
  add_custom_target(${target}_kernels DEPENDS ${embedded})
  add_dependencies(${target} ${target}_kernels)
  set_source_files_properties(${embedded} TARGET_DIRECTORY ${target} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)  # lint does not make them
  target_sources(${target} PRIVATE ${embedded})
endfunction()

# What the sources of the library are compiled with because of GPUs. The vendors' libraries are loaded, not linked.
function(sluice_use_gpus target)
  if(SLUICE_ENABLE_CUDA)
    target_compile_definitions(${target} PRIVATE SLUICE_HAS_CUDA)
    target_include_directories(${target} SYSTEM PRIVATE "${SLUICE_CUDA_INCLUDE_DIR}")
  endif()
  if(SLUICE_ENABLE_HIP)
    target_compile_definitions(${target} PRIVATE SLUICE_HAS_HIP __HIP_PLATFORM_AMD__)
    target_include_directories(${target} SYSTEM PRIVATE "${SLUICE_HIP_INCLUDE_DIR}")
  endif()
  if(SLUICE_ENABLE_CUDA OR SLUICE_ENABLE_HIP)
    target_link_libraries(${target} PRIVATE ${CMAKE_DL_LIBS})
  endif()
endfunction()
