// SPDX-License-Identifier: Apache-2.0
#include "dialects/messages/lane.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "dialects/common/closing.hpp"
#include "dialects/common/outcome.hpp"

namespace sluice::stream_mpi {

void Lane::add(std::shared_ptr<Transfer> message) {
  const std::lock_guard lock(mutex_);
  messages_.push_back(std::move(message));
  ++waiting_;
  if (failure_ != nullptr) fail_all();
}

void Lane::progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) move_started();
}

bool Lane::go_on(detail::EndsWait& waits) noexcept {
  if (!busy()) return false;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock.owns_lock()) {
    if (!move_started()) return false;
    waits.add(end());
  } else {
    waits.look_soon();  // the other thread may leave something
  }
  return true;
}

bool Lane::move_started() noexcept {
  try {
    while (!messages_.empty() && messages_.front()->started()) {
      if (!step(*messages_.front())) return true;
      messages_.pop_front();
      --waiting_;
    }
  } catch (...) {
    failure_ = std::current_exception();
    fail_all();
    begin_to_close(end());
  }
  return false;
}

void Lane::fail(std::exception_ptr failure) {
  const std::lock_guard lock(mutex_);
  if (failure_ == nullptr) failure_ = std::move(failure);
  fail_all();
  begin_to_close(end());
}

void Lane::fail_all() {
  for (const auto& message : messages_) message->fail(failure_);
  const std::size_t failed = messages_.size();
  messages_.clear();
  waiting_ -= failed;  // last: while the lane is busy, not only its messages keep it
}

namespace {
/// Begins the first part of each message.
struct Header {
  std::uint64_t bytes;
};
}  // namespace

class SendLane final : public Lane {
 public:
  SendLane(Context& context, Scope scope, Rank peer, Tag tag) {
    const Slice slots = context.allocate(kDepth * kSlotBytes).all();
    sender_ = scope.sender(peer, tag, slots, {.depth = kDepth, .name = "stream MPI"});
  }

 private:
  bool step(Transfer& message) override {
    message.begin(Direction::send);
    while (!message.parts.begun || message.parts.moved < message.parts.bytes) {
      if (!sender_.credited()) return false;
      const std::size_t used = fill(message, sender_.acquire(Stream::program_order()).data());
      sender_.put(Stream::program_order(), 0, used);
    }
    message.end(Direction::send);
    return true;
  }

  static std::size_t fill(Transfer& message, std::byte* slot) {
    std::size_t used = 0;
    if (!message.parts.begun) {
      const Header header{message.parts.bytes};
      std::memcpy(slot, &header, sizeof header);
      used = sizeof header;
      message.parts.begun = true;
    }
    const std::size_t part = std::min(message.parts.bytes - message.parts.moved, kSlotBytes - used);
    if (part > 0) std::memcpy(slot + used, message.parts.at + message.parts.moved, part);
    message.parts.moved += part;
    return used + part;
  }

  ChannelHandle& end() noexcept override { return sender_; }

  Sender sender_;
  Background::Listed listed_{*this};
};

class ReceiveLane final : public Lane {
 public:
  ReceiveLane(Context& context, Scope scope, Rank peer, Tag tag) {
    const Slice slots = context.allocate(kDepth * kSlotBytes).all();
    receiver_ = scope.receiver(peer, tag, slots, {.depth = kDepth, .name = "stream MPI"});
  }

 private:
  bool step(Transfer& message) override {
    message.begin(Direction::receive);
    while (const auto slot = receiver_.test()) {
      empty(message, slot->data());
      receiver_.release(Stream::program_order());
      if (message.parts.moved < message.parts.bytes) continue;
      message.end(Direction::receive);
      return true;
    }
    if (receiver_.closed())
      throw Refused(MPI_ERR_OTHER, "the sender of a message has ended MPI, or has failed to send it");
    return false;
  }

  /// Copies a part into the buffer, and drops the bytes that do not fit.
  static void empty(Transfer& message, const std::byte* slot) {
    std::size_t used = 0;
    if (!message.parts.begun) {
      Header header{};
      std::memcpy(&header, slot, sizeof header);
      used = sizeof header;
      message.parts.bytes = header.bytes;
      message.parts.begun = true;
    }
    const std::size_t part = std::min(message.parts.bytes - message.parts.moved, kSlotBytes - used);
    const std::size_t room = message.room();
    const std::size_t kept = message.parts.moved < room ? std::min(part, room - message.parts.moved) : 0;
    if (kept > 0) std::memcpy(message.parts.at + message.parts.moved, slot + used, kept);
    message.parts.moved += part;
  }

  ChannelHandle& end() noexcept override { return receiver_; }

  Receiver receiver_;
  Background::Listed listed_{*this};
};

std::shared_ptr<Lane> open_lane(Job& job, Scope scope, Rank peer, Tag tag, Direction direction) {
  if (direction == Direction::send) return std::make_shared<SendLane>(job.context, std::move(scope), peer, tag);
  return std::make_shared<ReceiveLane>(job.context, std::move(scope), peer, tag);
}

}  // namespace sluice::stream_mpi
