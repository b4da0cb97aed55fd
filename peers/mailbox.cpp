// SPDX-License-Identifier: Apache-2.0
#include "peers/mailbox.hpp"

#include <fcntl.h>

#include <cerrno>
#include <deque>
#include <mutex>
#include <system_error>

namespace sluice::runtime {

struct LineEnd::Line {
  std::mutex mutex;
  std::deque<base::Packet> packets;
  bool sender_open = true;
  bool receiver_open = true;
  std::shared_ptr<const base::Waker> sender;
  std::shared_ptr<const base::Waker> receiver;
};

LineEnd& LineEnd::operator=(LineEnd&& other) noexcept {
  close();
  line_ = std::move(other.line_);
  sends_ = other.sends_;
  return *this;
}

void LineEnd::close() noexcept {
  if (line_ == nullptr) return;
  {
    const std::lock_guard lock(line_->mutex);
    (sends_ ? line_->sender_open : line_->receiver_open) = false;
  }
  (sends_ ? line_->receiver : line_->sender)->ring();
  line_.reset();
}

bool LineEnd::send(std::span<const std::byte> bytes, std::span<const int> fds) {
  base::Packet packet;
  packet.bytes.assign(bytes.begin(), bytes.end());
  for (const int fd : fds) {
    packet.fds.push_back(base::open_with_room([fd] { return ::fcntl(fd, F_DUPFD_CLOEXEC, 0); }));
    if (!packet.fds.back()) throw std::system_error(errno, std::generic_category(), "copying a descriptor for a peer");
  }
  {
    const std::lock_guard lock(line_->mutex);
    if (!line_->receiver_open) return false;
    line_->packets.push_back(std::move(packet));
  }
  line_->receiver->ring();
  return true;
}

std::optional<base::Packet> LineEnd::receive() {
  const std::lock_guard lock(line_->mutex);
  if (line_->packets.empty() && line_->sender_open) return std::nullopt;
  base::Packet packet;
  packet.closed = line_->packets.empty();
  if (packet.closed) return packet;
  packet = std::move(line_->packets.front());
  line_->packets.pop_front();
  return packet;
}

bool LineEnd::hung_up() const {
  const std::lock_guard lock(line_->mutex);
  return !(sends_ ? line_->receiver_open : line_->sender_open);
}

struct Mailbox::Box {
  std::shared_ptr<const base::Waker> waker = std::make_shared<base::Waker>();
  std::mutex mutex;
  bool open = true;
  std::vector<LineEnd> lines;  // that have arrived
};

std::vector<Mailbox> Mailbox::of_threads(int ranks) {
  const auto boxes = std::make_shared<std::vector<Box>>(static_cast<std::size_t>(ranks));
  std::vector<Mailbox> all;
  for (Rank rank = 0; rank < ranks; ++rank) all.push_back(Mailbox(boxes, rank));
  return all;
}

Mailbox& Mailbox::operator=(Mailbox&& other) noexcept {
  close();
  boxes_ = std::move(other.boxes_);
  rank_ = other.rank_;
  return *this;
}

Mailbox::Box& Mailbox::box(Rank rank) const { return (*boxes_)[static_cast<std::size_t>(rank)]; }

void Mailbox::close() noexcept {
  if (boxes_ == nullptr) return;
  std::vector<LineEnd> lines;  // closed without the mutex
  {
    const std::lock_guard lock(box(rank_).mutex);
    box(rank_).open = false;
    lines.swap(box(rank_).lines);
  }
  boxes_.reset();
}

std::shared_ptr<const base::Waker> Mailbox::waker() const { return box(rank_).waker; }

LineEnd Mailbox::connect(Rank peer) const {
  auto line = std::make_shared<LineEnd::Line>();
  line->sender = waker();
  line->receiver = box(peer).waker;
  {
    const std::lock_guard lock(box(peer).mutex);
    if (!box(peer).open) return {};
    box(peer).lines.push_back(LineEnd(line, false));
  }
  line->receiver->ring();
  return {std::move(line), true};
}

std::vector<LineEnd> Mailbox::arrived() const {
  std::vector<LineEnd> lines;
  const std::lock_guard lock(box(rank_).mutex);
  lines.swap(box(rank_).lines);
  return lines;
}

}  // namespace sluice::runtime
