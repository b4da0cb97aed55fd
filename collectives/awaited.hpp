// SPDX-License-Identifier: Apache-2.0
// For the libraries in dialects/: a thread that goes on with a collective, and what that waits for.
#pragma once

#include "runtime/ends_wait.hpp"

#include <sluice/collectives.hpp>

namespace sluice::detail {

// Between `start` and `wait` on a GPU's stream a thread enqueues steps on another stream of that GPU, which waits for
// no peer: the thread enqueues a step once what the step waits for is there.
/// True if `advance` enqueues something, has nothing left to enqueue, or throws.
SLUICE_EXPORT bool can_advance(const Collective& collective) noexcept;
/// Returns at once. `stream` runs behind the start, and what follows on the stream of the start runs behind `stream`.
/// True: all steps are enqueued, and `wait` adds none. @throws Error as `start` and `wait` do
SLUICE_EXPORT bool advance(Collective& collective, Stream stream);

/// After a `test`, or a `can_advance` or `advance`, that has returned false, by the same thread: adds the end whose
/// next event lets `collective` go on.
SLUICE_EXPORT void add_awaited(Collective& collective, EndsWait& waits) noexcept;

}  // namespace sluice::detail
