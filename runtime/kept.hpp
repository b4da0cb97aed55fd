// SPDX-License-Identifier: Apache-2.0
// Ends that are in use after their handle was destroyed.
#pragma once

#include <sluice/types.hpp>

#include <memory>
#include <optional>

namespace sluice::runtime {

class ChannelEnd;

/// Time left for closing a channel that an exception, or the end of the rank, leaves open. All such channels of a
/// thread share one deadline: 5 s, or `most`, after the first call. Exceptions cannot be told apart, so a new deadline
/// begins 5 s after the last one passed, or after `begin_anew`.
Timeout time_to_leave(Timeout most) noexcept;
/// The thread has opened a channel: `time_to_leave` begins a new deadline.
void begin_anew() noexcept;

/// Closes the end of a destroyed handle. What cannot be closed in time is kept, and reported.
void abandon(std::shared_ptr<ChannelEnd> end) noexcept;

/// Keeps the end until `reclaim` can close it.
void keep(std::shared_ptr<ChannelEnd> end);
/// Closes and frees what was kept, as far as nothing uses it any more.
void reclaim();
/// Streams may use it to the end of the process.
void keep_for_ever(std::shared_ptr<ChannelEnd> end);

}  // namespace sluice::runtime
