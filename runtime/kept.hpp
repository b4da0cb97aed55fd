// SPDX-License-Identifier: Apache-2.0
// Ends that streams or the peer still use after the handle was destroyed.
#pragma once

#include <sluice/types.hpp>

#include <memory>

namespace sluice::runtime {

class ChannelEnd;
class WindowCore;

/// Time left for closing a channel that an exception, or the end of the rank, leaves open. All such channels of a
/// thread share one deadline: 5 s, or `most`, after the first call. Exceptions cannot be told apart, so a new deadline
/// begins 5 s after the last one passed, or after `begin_anew`.
Timeout time_to_leave(Timeout most) noexcept;
/// The thread has opened a channel: `time_to_leave` begins a new deadline.
void begin_anew() noexcept;

/// Closes the end of a destroyed handle. Keeps and logs an end that cannot be closed in time.
void abandon(std::shared_ptr<ChannelEnd> end) noexcept;

/// Closes the window of a destroyed handle. Keeps and logs one that cannot be closed in time.
void abandon(std::shared_ptr<WindowCore> window) noexcept;

/// Closes and frees the kept ends and windows that nothing uses any more.
void reclaim();
/// Keeps the end to the end of the process: streams may use it for that long.
void keep_for_ever(std::shared_ptr<ChannelEnd> end);

}  // namespace sluice::runtime
