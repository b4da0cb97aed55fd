// SPDX-License-Identifier: Apache-2.0
// For the libraries in dialects/: what a collective waits for.
#pragma once

#include "runtime/ends_wait.hpp"

#include <sluice/collectives.hpp>

namespace sluice::detail {

/// After a `test` that has returned false, by the same thread: adds the end whose next event lets `collective` go on.
SLUICE_EXPORT void add_awaited(Collective& collective, EndsWait& waits) noexcept;

}  // namespace sluice::detail
