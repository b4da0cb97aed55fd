// SPDX-License-Identifier: Apache-2.0
// Ranks send each other messages of MPI, where nothing else reaches the peer.
#pragma once

#include <memory>

#include "backends/mpi/messages.hpp"
#include "backends/transport.hpp"

namespace sluice::backends::mpi {

/// Returns the row of this backend in the table of backends.
Backend row();

/// A transport over these messages.
std::unique_ptr<Transport> open_over(std::unique_ptr<Messages> messages, const Settings& settings);

}  // namespace sluice::backends::mpi
