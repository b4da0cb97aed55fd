// SPDX-License-Identifier: Apache-2.0
// Views that have gaps between their elements, moved by Sluice and by MPI. Only the files that implement this header
// include Kokkos.
#pragma once

#include "apps/bench/harness/contender.hpp"
#include "apps/bench/ours/ours.hpp"

#include <cstddef>
#include <memory>
#include <string>

namespace bench {

/// Cells along each side of the cube whose faces are exchanged, doubles.
inline constexpr int kCubeSide = 200;
inline constexpr int kCubeFaces = 6;
inline constexpr std::size_t kFaceBytes = sizeof(double) * kCubeSide * kCubeSide;

/// The reason why this program has no packing; empty if it has.
std::string why_no_packing();

/// Starts Kokkos if `bench` needs it; Kokkos ends when the result is destroyed.
std::shared_ptr<void> start_kokkos(const std::string& bench);

/// A round trip of `bytes` bytes of ints, every second one of a View at both ends.
Ours make_column_ping_pong(const Workload& workload);
/// All faces of a cube are sent, each to a neighbour, and as many are received, into Views without gaps. The neighbours
/// are those of `make_halo`.
Ours make_face_exchange(const Workload& workload);

enum class MpiPacking {
  by_kokkos,    ///< kernels that pack, a fence, persistent requests, kernels that unpack
  by_datatype,  ///< persistent requests of MPI_Type_vector
};

/// @throws apps::UsageError if MPI does not run, or if the program was built without it or without Kokkos.
std::unique_ptr<Contender> make_mpi_column_ping_pong(MpiPacking packing, const Workload& workload);
std::unique_ptr<Contender> make_mpi_face_exchange(MpiPacking packing, const Workload& workload);

}  // namespace bench
