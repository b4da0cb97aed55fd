// SPDX-License-Identifier: Apache-2.0
// Put before a source of Cabana's or of CabanaGhost's, which then runs its halos on a host stream of Sluice's, in place
// of a GPU's. All headers that these macros must not reach are included here. For stream_halo.py.
#pragma once

#include "tests/neighbours/cabana_ghost/stream_space.hpp"

#include <sluice/dialects/mpich.h>
#include <stream-triggering.h>

#include <gtest/gtest.h>
#include <mpi.h>
#include <Cabana_Core.hpp>

#include <cstring>
#include <string>

#if !__has_include(<format>)
#define FMT_HEADER_ONLY
#include <fmt/format.h>
namespace std {
using fmt::format;
}
#endif

/// Names a host stream where Cabana names one of CUDA's.
inline int set_info(MPI_Info info, const char* key, const char* value) {
  return MPI_Info_set(info, key, std::strcmp(value, "cudaStream_t") == 0 ? "sluice_host_stream*" : value);
}
using Kokkos::cudaStream_t;

// The halo on MPICH's streams takes a stream from CUDA alone.
#include <Cabana_Grid_Halo.hpp>
#define KOKKOS_ENABLE_CUDA
#define MPI_Info_set set_info
#include <Cabana_Grid_StreamHalo.hpp>
#undef MPI_Info_set
#undef KOKKOS_ENABLE_CUDA
#include <Cabana_Grid.hpp>

#ifdef CABANA_GHOST
// Pictures are left out.
#define CABANAGHOST_SILOWRITER_HPP
namespace CabanaGhost {
template <class ProblemManager, unsigned long Dims>
struct SiloWriter {
  explicit SiloWriter(const ProblemManager&) {}
  void siloWrite(char*, int, double, double) {}
};
}  // namespace CabanaGhost
// Cabana has no halo for Cray, and CabanaGhost names one wherever that for MPICH is there.
#define CrayMpi Mpich
#define DefaultExecutionSpace HIP
#else
#define MpiAdvance HALO_SPACE
#endif
