// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace sluice::stream_mpi {

/// In this order: streams still need lanes and collectives, and requests are complete once their streams are.
enum class Phase : std::uint8_t { streams, requests, lanes, collectives };

/// Runs `work()` in MPI_Finalize, in its phase, before the job ends. Any thread.
void at_end(Phase phase, void (*work)());

}  // namespace sluice::stream_mpi
