// SPDX-License-Identifier: Apache-2.0
// How ranks that are threads of one process talk: by packets in queues, which take no descriptors.
#pragma once

#include <sluice/types.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/fd.hpp"

namespace sluice::runtime {

using SharedWaker = std::shared_ptr<const base::Waker>;

/// One end of a line that carries packets from one rank to another. Destroying the end closes it, and wakes the other
/// rank.
class LineEnd {
 public:
  /// A new line, by the wakers of the two ranks. The first end sends, the second receives.
  static std::pair<LineEnd, LineEnd> make_line(const SharedWaker& sender, const SharedWaker& receiver);

  explicit operator bool() const noexcept { return queue_ != nullptr; }
  /// Sends copies, and wakes the other rank. False: the other end is closed.
  /// @throws std::system_error if this process has no room for the copies of the descriptors
  bool send(std::span<const std::byte> bytes, std::span<const int> fds);
  /// The next packet; nothing: none now. `closed`: the other end is closed, and everything has been received.
  std::optional<base::Packet> receive();
  /// The other end is closed.
  bool hung_up() const noexcept { return other_end_.expired(); }

 private:
  struct Queue;

  std::shared_ptr<Queue> queue_;
  SharedWaker other_rank_;                      // rung when this end is destroyed
  std::weak_ptr<const base::Waker> other_end_;  // expired: destroyed
};

/// Receives the lines to one rank. When the mailbox has been destroyed, peers that connect find that the rank has
/// ended. Empty: the rank is a process.
class Mailbox {
 public:
  /// Makes the mailboxes of all ranks of one process. @throws std::system_error
  static std::vector<Mailbox> of_threads(int ranks);

  explicit operator bool() const noexcept { return own_ != nullptr; }
  /// Rung when a line or a packet arrives for the rank.
  SharedWaker waker() const;
  /// A new line to the peer: the end that sends. Empty: the peer has ended.
  LineEnd connect(Rank peer) const;
  /// The ends that receive, of the lines that have arrived since the last call.
  std::vector<LineEnd> arrived() const;

 private:
  struct Box;

  std::shared_ptr<Box> own_;                                      // the only owner
  std::shared_ptr<const std::vector<std::weak_ptr<Box>>> boxes_;  // of all ranks, by rank
};

}  // namespace sluice::runtime
