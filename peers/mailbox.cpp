// SPDX-License-Identifier: Apache-2.0
#include "peers/mailbox.hpp"

#include <fcntl.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <deque>
#include <mutex>
#include <system_error>

namespace sluice::runtime {

struct LineEnd::Queue {
  std::mutex mutex;
  std::deque<base::Packet> packets;
  std::array<std::atomic<bool>, 2> destroyed{};  // the sending end, the receiving end
};

bool LineEnd::hung_up() const noexcept { return other_end_->load(std::memory_order_acquire); }

std::pair<LineEnd, LineEnd> LineEnd::make_line(const SharedWaker& sender, const SharedWaker& receiver) {
  const auto queue = std::make_shared<Queue>();
  auto& [sending_destroyed, receiving_destroyed] = queue->destroyed;
  // Released by the end of a rank, so that a peer which finds it sees all that the rank has done before.
  const auto rung_at_the_end = [&](const SharedWaker& waker, std::atomic<bool>& destroyed) {
    return SharedWaker(waker.get(), [waker, queue, &destroyed](const base::Waker* other) {
      destroyed.store(true, std::memory_order_release);
      other->ring();
    });
  };
  std::pair<LineEnd, LineEnd> line;
  line.first.queue_ = line.second.queue_ = queue;
  line.first.other_rank_ = rung_at_the_end(receiver, sending_destroyed);
  line.second.other_rank_ = rung_at_the_end(sender, receiving_destroyed);
  line.first.other_end_ = &receiving_destroyed;
  line.second.other_end_ = &sending_destroyed;
  return line;
}

bool LineEnd::send(std::span<const std::byte> bytes, std::span<const int> fds) {
  base::Packet packet{{bytes.begin(), bytes.end()}, {}, false};
  for (const int fd : fds) {
    packet.fds.push_back(base::open_with_room([fd] { return ::fcntl(fd, F_DUPFD_CLOEXEC, 0); }));
    if (!packet.fds.back()) throw std::system_error(errno, std::generic_category(), "copying a descriptor for a peer");
  }
  if (hung_up()) return false;
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->packets.push_back(std::move(packet));
  }
  other_rank_->ring();
  return true;
}

std::optional<base::Packet> LineEnd::receive() {
  const bool closed = hung_up();  // before looking: a sender puts its last packet into the queue, then closes
  const std::lock_guard lock(queue_->mutex);
  if (queue_->packets.empty()) return closed ? std::optional(base::Packet{{}, {}, true}) : std::nullopt;
  base::Packet packet = std::move(queue_->packets.front());
  queue_->packets.pop_front();
  return packet;
}

struct Mailbox::Box {
  SharedWaker waker = std::make_shared<base::Waker>();
  std::mutex mutex;
  std::vector<LineEnd> lines;  // receiving ends that `arrived` has not returned yet
};

std::vector<Mailbox> Mailbox::of_threads(int ranks) {
  std::vector<Mailbox> all(static_cast<std::size_t>(ranks));
  const auto boxes = std::make_shared<std::vector<std::weak_ptr<Box>>>();
  for (Mailbox& mailbox : all) {
    boxes->push_back(mailbox.own_ = std::make_shared<Box>());
    mailbox.boxes_ = boxes;
  }
  return all;
}

SharedWaker Mailbox::waker() const { return own_->waker; }

LineEnd Mailbox::connect(Rank peer) const {
  const auto box = (*boxes_)[static_cast<std::size_t>(peer)].lock();
  if (box == nullptr) return {};
  auto [sends, receives] = LineEnd::make_line(waker(), box->waker);
  {
    const std::lock_guard lock(box->mutex);
    box->lines.push_back(std::move(receives));
  }
  box->waker->ring();
  return std::move(sends);
}

std::vector<LineEnd> Mailbox::arrived() const {
  std::vector<LineEnd> lines;
  const std::lock_guard lock(own_->mutex);
  lines.swap(own_->lines);
  return lines;
}

}  // namespace sluice::runtime
