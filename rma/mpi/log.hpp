// SPDX-License-Identifier: Apache-2.0
// Lines on stderr, by SLUICE_LOG, and the switches SLUICE_MPI_RMA and SLUICE_MPI_YIELD.
#pragma once

#include <cstdint>
#include <string_view>

namespace sluice::mpi_rma {

enum class Level : std::uint8_t { error, warn, info, trace };

/// True if SLUICE_LOG includes lines of this level.
bool enabled(Level level);

/// Writes "sluice: info: LINE" if it is enabled, in one write.
void log(Level level, std::string_view line);

/// False if SLUICE_MPI_RMA=0: MPI serves all windows.
bool switched_on();

/// False if SLUICE_MPI_YIELD=0: MPI waits as it does by itself.
bool mpi_yields();

}  // namespace sluice::mpi_rma
