// SPDX-License-Identifier: Apache-2.0
// Contenders that move Kokkos Views with gaps between their elements, by Sluice and by MPI. Only the files that
// implement this header include Kokkos.
#pragma once

#include "apps/bench/harness/contender.hpp"
#include "apps/bench/ours/ours.hpp"

#include <cstddef>
#include <memory>
#include <string>

namespace bench {

/// The cube whose faces are exchanged has so many cells along each side. A cell is a double.
inline constexpr int kCubeSide = 200;
inline constexpr int kCubeFaces = 6;
inline constexpr std::size_t kFaceBytes = sizeof(double) * kCubeSide * kCubeSide;

/// The reason why this program cannot pack; empty if it can.
std::string why_no_packing();

/// Starts Kokkos if `bench` needs it; Kokkos ends when the result is destroyed.
std::shared_ptr<void> start_kokkos(const std::string& bench);

/// A ping-pong of `bytes` bytes: ints, every second int of a View at both ends.
Ours make_column_ping_pong(const Workload& workload);
/// Steps in which a rank sends each face of a cube to a neighbour, and receives as many faces into Views without gaps.
/// The neighbours are those of `make_halo`.
Ours make_face_exchange(const Workload& workload);

enum class MpiPacking {
  by_kokkos,    ///< kernels that pack, a fence, persistent requests, kernels that unpack
  by_datatype,  ///< persistent requests of MPI_Type_vector
};

/// @throws apps::UsageError if MPI does not run, or if the program was built without it or without Kokkos.
std::unique_ptr<Contender> make_mpi_column_ping_pong(MpiPacking packing, const Workload& workload);
std::unique_ptr<Contender> make_mpi_face_exchange(MpiPacking packing, const Workload& workload);

}  // namespace bench
