// SPDX-License-Identifier: Apache-2.0
// The floor of a library that promises what a channel does: as many slots as --depth says, a signal and a credit for
// every message. Written by hand on mapped memory, without a library.
#pragma once

#include "apps/bench/harness/buffers.hpp"
#include "apps/bench/harness/contender.hpp"
#include "apps/bench/harness/counter.hpp"
#include "apps/bench/harness/exchange.hpp"
#include "apps/bench/harness/shared_pages.hpp"

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>

namespace bench {

/// The line that a rank's peer writes: the credit for this rank's messages travels with the signal of the peer's.
struct alignas(kLine) Words {
  Counter signal{0};  ///< messages of the peer that have arrived here
  Counter credit{0};  ///< messages of this rank that the peer has released
};

/// A channel each way. The pages that a rank shares have its words, its slots and its source, the latter two aligned as
/// Sluice's memory: to a page if all slots are at least as large as one, else to a cache line.
class Protocol {
 public:
  explicit Protocol(const Workload& workload)
      : bytes_(workload.bytes), depth_(static_cast<std::uint64_t>(workload.depth)),
        slots_at_(bytes_ * depth_ >= kPage ? kPage : 2 * kLine), source_at_(whole_pages(slots_at_ + bytes_ * depth_)),
        pages_(source_at_ + whole_pages(bytes_ + 1),
               [&](const SharedPages::Place& mine) { return exchange(workload.context, workload.peer, mine); }),
        mine_(*reinterpret_cast<Words*>(pages_.mine())), theirs_(*reinterpret_cast<Words*>(pages_.theirs())) {
    std::memset(pages_.mine() + source_at_, 1, bytes_);
    if (workload.options.memory == MemoryChoice::user) user_source_.emplace(bytes_);
    source_ = user_source_ ? user_source_->data() : pages_.mine() + source_at_;
  }

  std::byte* source() const { return source_; }

  /// Waits until a slot is free, and moves the source's first `bytes` there.
  void put(std::size_t bytes) {
    if (sent_ == credited_ + depth_) credited_ = await_count(mine_.credit, credited_ + 1);
    std::memcpy(pages_.theirs() + slot(sent_), source_, bytes);
    theirs_.signal.store(++sent_, std::memory_order_release);
  }
  /// Waits for the next message, and returns its slot.
  const std::byte* wait() {
    if (arrived_ == waited_) arrived_ = await_count(mine_.signal, waited_ + 1);
    return pages_.mine() + slot(waited_++);
  }
  /// Gives the slots of all messages that were waited for back.
  void release() { theirs_.credit.store(waited_, std::memory_order_release); }

 private:
  std::size_t slot(std::uint64_t message) const { return slots_at_ + message % depth_ * bytes_; }

  const std::size_t bytes_;
  const std::uint64_t depth_;
  const std::size_t slots_at_;
  const std::size_t source_at_;
  SharedPages pages_;
  Words& mine_;
  Words& theirs_;
  std::optional<Pages> user_source_;
  std::byte* source_ = nullptr;
  std::uint64_t sent_ = 0;
  std::uint64_t credited_ = 0;  // of those sent, what the peer has released, as far as this rank has looked
  std::uint64_t arrived_ = 0;   // messages of the peer, as far as this rank has looked
  std::uint64_t waited_ = 0;
};

std::unique_ptr<Contender> make_protocol_ping_pong(const Workload& workload);
std::unique_ptr<Contender> make_protocol_flood(const Workload& workload);
/// The ping-pong into malloc'ed memory, to which the receiver copies each message.
std::unique_ptr<Contender> make_two_copies(const Workload& workload);

}  // namespace bench
