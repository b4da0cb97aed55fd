// SPDX-License-Identifier: Apache-2.0
#include "peers/mailbox.hpp"

#include <fcntl.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <deque>
#include <mutex>
#include <system_error>
#include <utility>

namespace sluice::runtime {

struct Line {
  std::mutex mutex;
  std::deque<base::Packet> packets;
  std::array<std::atomic<bool>, 2> destroyed{};  // the sending end, the receiving end
};

LineEnd::LineEnd(const std::shared_ptr<Line>& line, Side side, const SharedWaker& other_rank)
    : line_(line), side_(side) {
  // Released by the end of a rank, so that a peer which finds it sees all that the rank has done before.
  other_rank_.reset(other_rank.get(), [line, side, other_rank](const base::Waker* waker) {
    line->destroyed[side].store(true, std::memory_order_release);
    waker->ring();
  });
}

bool LineEnd::hung_up() const noexcept { return line_->destroyed[1 - side_].load(std::memory_order_acquire); }

bool LineEnd::send(std::span<const std::byte> bytes, std::span<const int> fds) {
  base::Packet packet{{bytes.begin(), bytes.end()}, {}, false};
  for (const int fd : fds) {
    packet.fds.push_back(base::open_with_room([fd] { return ::fcntl(fd, F_DUPFD_CLOEXEC, 0); }));
    if (!packet.fds.back()) throw std::system_error(errno, std::generic_category(), "copying a descriptor for a peer");
  }
  if (hung_up()) return false;
  {
    const std::lock_guard lock(line_->mutex);
    line_->packets.push_back(std::move(packet));
  }
  other_rank_->ring();
  return true;
}

std::optional<base::Packet> LineEnd::receive() {
  const bool closed = hung_up();  // before looking: a sender puts its last packet into the queue, then closes
  const std::lock_guard lock(line_->mutex);
  if (line_->packets.empty()) return closed ? std::optional(base::Packet{{}, {}, true}) : std::nullopt;
  base::Packet packet = std::move(line_->packets.front());
  line_->packets.pop_front();
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
  const auto line = std::make_shared<Line>();
  LineEnd end(line, LineEnd::sends, box->waker);
  {
    const std::lock_guard lock(box->mutex);
    box->lines.emplace_back(line, LineEnd::receives, waker());
  }
  box->waker->ring();
  return end;
}

std::vector<LineEnd> Mailbox::arrived() const {
  const std::lock_guard lock(own_->mutex);
  return std::exchange(own_->lines, {});
}

}  // namespace sluice::runtime
