# SPDX-License-Identifier: Apache-2.0
# Programs whose kernels Kokkos compiles, for processors or for NVIDIA GPUs. `./dev` includes this when it builds Kokkos, too.

# CMake 3.25 looks for a library of CUDA's that CUDA 13 does not have, and ends the configuration if nobody has defined it.
if(NOT TARGET CUDA::nvToolsExt)
  add_library(CUDA::nvToolsExt INTERFACE IMPORTED GLOBAL)
endif()

# For an executable that links a library which uses Kokkos. With CUDA, Kokkos puts a script of its own in front of the compiler and of the
# linker, which does not know a cache that is there already; it passes on what is not compiled with Kokkos.
function(sluice_link_kokkos target)
  if(Kokkos_ENABLE_CUDA)
    kokkos_compilation(TARGET ${target})
    set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "")
  endif()
endfunction()

function(sluice_use_kokkos target)
  target_link_libraries(${target} PRIVATE Kokkos::kokkos)
  sluice_link_kokkos(${target})
  if(Kokkos_ENABLE_CUDA)
    target_compile_options(${target} PRIVATE --expt-relaxed-constexpr)  # models need no annotations then
  endif()
endfunction()
