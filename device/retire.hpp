// SPDX-License-Identifier: Apache-2.0
// What a driver does only once all streams of a GPU are idle (freeing memory, say) would wait for a parked stream, and
// with it for a peer. So it is put off while any of ours may be parked.
#pragma once

#include <functional>

namespace sluice::device {

/// Who gives work to a GPU's streams.
class StreamUser {
 public:
  virtual ~StreamUser() = default;
  /// Whether some of it may not have run yet.
  virtual bool may_be_parked() const noexcept = 0;
};

// Any thread. A user is removed before it is gone.
void add_user(const StreamUser& user);
void remove_user(const StreamUser& user) noexcept;

/// Calls `free` now, or as soon as nothing may be parked any more and one of these two is called again.
void retire(std::function<void()> free);
void reap();
/// Whether work of any user may not have run yet.
bool any_parked();

}  // namespace sluice::device
