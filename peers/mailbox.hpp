// SPDX-License-Identifier: Apache-2.0
// Messages between ranks that are threads of one process: packets in queues, which take no descriptors.
#pragma once

#include <sluice/types.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/fd.hpp"

namespace sluice::runtime {

using SharedWaker = std::shared_ptr<const base::Waker>;

struct Line;  ///< in mailbox.cpp

/// One end of a line that carries packets from one rank to another. Destroying the end closes it, and wakes the other
/// rank.
class LineEnd {
 public:
  enum Side : std::uint8_t { sends, receives };

  LineEnd() noexcept = default;
  LineEnd(const std::shared_ptr<Line>& line, Side side, const SharedWaker& other_rank);
  LineEnd(LineEnd&&) noexcept = default;  // no copies, which would keep the end open
  LineEnd& operator=(LineEnd&&) noexcept = default;

  explicit operator bool() const noexcept { return line_ != nullptr; }
  /// Sends copies, and wakes the other rank. Returns false if the other end is closed.
  /// @throws std::system_error if this process has no room for the copies of the descriptors
  bool send(std::span<const std::byte> bytes, std::span<const int> fds);
  /// The next packet, if there is one. `closed`: the other end is closed, and every packet has been received.
  std::optional<base::Packet> receive();
  /// The other end is closed.
  bool hung_up() const noexcept;

 private:
  std::shared_ptr<Line> line_;
  Side side_ = sends;
  SharedWaker other_rank_;  // rung when this end is destroyed
};

/// Receives the lines to one rank. Peers cannot connect to a mailbox that has been destroyed: the rank has ended. An
/// empty one means that the rank is a process.
class Mailbox {
 public:
  /// Makes the mailboxes of all ranks of one process. @throws std::system_error
  static std::vector<Mailbox> of_threads(int ranks);

  Mailbox() noexcept = default;
  Mailbox(Mailbox&&) noexcept = default;  // no copies, which would hide the end of the rank
  Mailbox& operator=(Mailbox&&) noexcept = default;

  explicit operator bool() const noexcept { return own_ != nullptr; }
  /// Rung when a line or a packet arrives for the rank.
  SharedWaker waker() const;
  /// Makes a line to the peer, and returns the end that sends; an empty one if the peer has ended.
  LineEnd connect(Rank peer) const;
  /// The receiving ends of the lines that peers have made since the last call.
  std::vector<LineEnd> arrived() const;

 private:
  struct Box;

  std::shared_ptr<Box> own_;                                      // the only owner
  std::shared_ptr<const std::vector<std::weak_ptr<Box>>> boxes_;  // of all ranks, by rank
};

}  // namespace sluice::runtime
