// SPDX-License-Identifier: Apache-2.0
// Operations of a driver that wait until all streams of a GPU are idle (freeing memory, say) would wait for a parked
// stream, and with it for a peer. So they are put off while a stream with our work may be parked, and no stream is
// given work while one is under way.
#pragma once

#include <functional>
#include <mutex>
#include <shared_mutex>

namespace sluice::device {

/// A part of the library that gives work to a GPU's streams.
class StreamUser {
 public:
  virtual ~StreamUser() = default;
  /// True if some of the work may not have run yet.
  virtual bool may_be_parked() const noexcept = 0;
};

// Any thread. A user must be removed before it is destroyed.
void add_user(const StreamUser& user);
void remove_user(const StreamUser& user) noexcept;

/// Held by a thread while it gives work to a GPU's stream. The work must count for `may_be_parked` before.
std::shared_lock<std::shared_mutex> giving_work();

/// Calls `free` now, or in the first call of `retire` or `reap` at which no stream may be parked and no thread gives
/// one work. `free` gives none itself.
void retire(std::function<void()> free);
void reap();
/// True if work of any user may not have run yet.
bool any_parked();

}  // namespace sluice::device
