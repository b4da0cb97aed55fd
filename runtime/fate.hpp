// SPDX-License-Identifier: Apache-2.0
// Ends that fail together.
#pragma once

#include <sluice/error.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/gpu.hpp"

namespace sluice::runtime {

class ChannelEnd;

/// Ends of one rank, each of which fails when one does, with its failure, of which their peers are told. So a failure
/// spreads through all ranks that are connected by such ends, also where they wait for ranks that are well. All have
/// failed before a wait of one ends: no put follows it. Any thread may call all of it.
class SharedFate {
 public:
  /// Before the end is used. If one of the others has failed, it fails too.
  static void join(const std::shared_ptr<SharedFate>& fate, ChannelEnd& end);
  /// Before it closes, and by its destructor.
  void leave(const ChannelEnd& end) noexcept;
  /// For an end that has left, and could not be closed: it fails with the others again.
  void rejoin(ChannelEnd& end) noexcept;
  /// Fails one of the ends, and so all; nothing if there are none.
  void fail(Code code, const std::string& what) noexcept;

  // For an end that fails: it holds the lock from before its failure is recorded until its waits are ended.
  std::unique_lock<std::mutex> lock() noexcept { return std::unique_lock(mutex_); }
  /// True if a verb of one of them was called.
  bool any_used() const noexcept;
  /// From now on puts of the others move nothing.
  void fail_others(const ChannelEnd& end, const device::SharedFailure& failure) noexcept;
  /// Ends their waits, and tells their peers `what`.
  void release_others(const ChannelEnd& end, const std::string& what) noexcept;
  /// For an end that has failed while it joined.
  void catch_up(const ChannelEnd& end) noexcept;

  /// True if one of them has failed.
  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  /// The first failure; null: none.
  device::SharedFailure first() const noexcept;
  /// Throws it, if there is one.
  void check() const;
  /// Reports it to the host stream that waits for what the ends do.
  void report(device::Lane lane) const noexcept;

 private:
  mutable std::mutex mutex_;
  std::vector<ChannelEnd*> ends_;
  device::SharedFailure first_;
  std::string what_;
  std::atomic<bool> failed_{false};  // `first_` is set: for threads that look again and again
};

}  // namespace sluice::runtime
