// SPDX-License-Identifier: Apache-2.0
// The messages of one communicator, peer, tag and direction, one after another, over a channel of small slots.
#pragma once

#include "dialects/common/background.hpp"
#include "dialects/common/job.hpp"
#include "dialects/common/pairing.hpp"
#include "dialects/messages/transfer.hpp"

#include <sluice/channel.hpp>

#include <atomic>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>

namespace sluice::stream_mpi {

/// Moves messages in the order in which they were added, at both ends, so that the n-th send is received by the n-th
/// receive. The slots have a fixed size, and so neither end needs to know the sizes of the other's messages: a message
/// is cut into parts, of which the first begins with its size. Up to `kDepth` parts travel before the receive has
/// started.
///
/// Each of these threads moves the bytes of all started messages: a waiting stream's, the program's in MPI_Test or
/// MPI_Wait, and the background's. So no message waits for another of a different lane.
class Lane : public Pending {
 public:
  virtual ~Lane() = default;

  static constexpr std::size_t kSlotBytes = 16384;
  static constexpr int kDepth = 4;

  void add(std::shared_ptr<Transfer> message);
  /// Goes on without blocking. Returns at once if another thread does.
  void progress();
  /// Messages that are not complete, and all later ones, fail, here and at the peer.
  void fail(std::exception_ptr failure);
  bool busy() const noexcept { return waiting_.load(std::memory_order_relaxed) > 0; }
  bool go_on(detail::EndsWait& waits) noexcept final;

 protected:
  /// True: the message is complete. @throws Error, Refused
  virtual bool step(Transfer& message) = 0;
  /// Its end of the channel.
  virtual ChannelHandle& end() noexcept = 0;

 private:
  /// With the mutex. True: the first message has started, and is not complete.
  bool move_started() noexcept;
  void fail_all();

  std::mutex mutex_;
  std::deque<std::shared_ptr<Transfer>> messages_;
  std::atomic<std::size_t> waiting_ = 0;
  std::exception_ptr failure_;
};

/// The lane of an envelope, which is opened at its first use. Any thread. @throws Refused, Error
std::shared_ptr<Lane> lane_of(const Envelope& envelope, Direction direction);

/// A lane over a channel of its own, of 64 KiB. @throws Error
std::shared_ptr<Lane> open_lane(Job& job, Scope scope, Rank peer, Tag tag, Direction direction);

/// Goes on with the messages of all lanes. True: one of them had some.
bool progress_lanes();

}  // namespace sluice::stream_mpi
