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

/// One end of a line that carries packets from one rank to another. The destructor closes it, and wakes the other rank.
class LineEnd {
 public:
  LineEnd() noexcept = default;
  LineEnd(LineEnd&& other) noexcept : line_(std::move(other.line_)), sends_(other.sends_) {}
  LineEnd& operator=(LineEnd&& other) noexcept;
  ~LineEnd() { close(); }

  explicit operator bool() const noexcept { return line_ != nullptr; }
  /// Sends copies, and wakes the other rank. False: the other end is closed.
  /// @throws std::system_error if this process has no room for the copies of the descriptors
  bool send(std::span<const std::byte> bytes, std::span<const int> fds);
  /// The next packet; nothing: none now. `closed`: the other end is closed, and everything has been received.
  std::optional<base::Packet> receive();
  /// The other end is closed.
  bool hung_up() const;

 private:
  friend class Mailbox;
  struct Line;
  LineEnd(std::shared_ptr<Line> line, bool sends) noexcept : line_(std::move(line)), sends_(sends) {}
  void close() noexcept;

  std::shared_ptr<Line> line_;
  bool sends_ = false;
};

/// Receives the lines to one rank. The destructor closes it: peers that connect later find that the rank has ended.
class Mailbox {
 public:
  /// No mailbox: the rank is a process.
  Mailbox() noexcept = default;
  /// Makes the mailboxes of all ranks of one process. @throws std::system_error
  static std::vector<Mailbox> of_threads(int ranks);
  Mailbox(Mailbox&& other) noexcept : boxes_(std::move(other.boxes_)), rank_(other.rank_) {}
  Mailbox& operator=(Mailbox&& other) noexcept;
  ~Mailbox() { close(); }

  explicit operator bool() const noexcept { return boxes_ != nullptr; }
  /// Rung when a line or a packet arrives for the rank.
  std::shared_ptr<const base::Waker> waker() const;
  /// A new line to the peer: the end that sends. Empty: the peer has ended.
  LineEnd connect(Rank peer) const;
  /// The ends that receive, of the lines that have arrived since the last call.
  std::vector<LineEnd> arrived() const;

 private:
  struct Box;
  Mailbox(std::shared_ptr<std::vector<Box>> boxes, Rank rank) noexcept : boxes_(std::move(boxes)), rank_(rank) {}
  Box& box(Rank rank) const;
  [[gnu::visibility("default")]] void close() noexcept;

  std::shared_ptr<std::vector<Box>> boxes_;  // of all ranks, by rank
  Rank rank_ = 0;
};

}  // namespace sluice::runtime
