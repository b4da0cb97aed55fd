// SPDX-License-Identifier: Apache-2.0
// Channels and collectives that end without waiting for their peers.
#pragma once

#include <sluice/types.hpp>

#include <exception>

namespace sluice::stream_mpi {

/// No verb of `end` follows here, and waits of its peers for it end. Does not block: the destructor of `end` waits
/// until no peer uses the memory.
template <class End>
void begin_to_close(End& end) noexcept {
  try {
    end.close(Timeout::zero());
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): a timeout
  }
}

}  // namespace sluice::stream_mpi
