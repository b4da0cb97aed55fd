// SPDX-License-Identifier: Apache-2.0
// For the libraries in dialects/: a thread that goes on with many channels sleeps while none of them can move.
#pragma once

#include <sluice/channel.hpp>

#include <memory>

namespace sluice::detail {

/// One thread adds ends and sleeps. An end that was added lives until `clear`, also if its handle closes it.
class SLUICE_EXPORT EndsWait {
 public:
  EndsWait();
  EndsWait(const EndsWait&) = delete;
  EndsWait& operator=(const EndsWait&) = delete;
  ~EndsWait();

  /// A Sender waits for credit for its next put, a Receiver for its next epoch. Without memory for it, the next sleep
  /// is short.
  void add(const ChannelHandle& end) noexcept;
  /// Something waits for what is no end: the next sleep is short.
  void look_soon() noexcept;
  void clear() noexcept;
  /// Sleeps until one of them can go on, has failed, or `wake` was called since the last call. It may return early.
  void sleep();
  /// Any thread.
  void wake() noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace sluice::detail
