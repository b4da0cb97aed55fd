// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/rivals/floor.hpp"

#include "apps/bench/harness/buffers.hpp"
#include "apps/bench/harness/exchange.hpp"
#include "apps/bench/harness/shared_pages.hpp"
#include "apps/bench/rivals/link_contenders.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>

namespace bench {
namespace {

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

/// A Link (link_contenders.hpp). The pages that a rank shares begin with its counters, one cache line each: messages,
/// then each kind of signal. The target follows, and in pages of their own the source.
///
/// The source is memory of the same kind as Sluice's: pages of the same file, or malloc'ed memory. Target and source
/// are aligned like Sluice's memory: to a cache line, or to a page if they are at least as large as one.
class FloorLink {
 public:
  FloorLink(const Workload& workload, const LinkLayout& layout, MemoryChoice source)
      : bytes_(workload.bytes), all_bytes_(bytes_ * layout.slots),
        target_at_(round_up((1 + layout.signals) * kLine, all_bytes_ >= kPage ? kPage : kLine)),
        source_at_(round_up(target_at_ + all_bytes_, kPage)),
        pages_(source_at_ + std::max<std::size_t>(all_bytes_, 1),
               [&](const SharedPages::Place& mine) { return exchange(workload.context, workload.peer, mine); }) {
    if (source == MemoryChoice::user) {
      user_source_.emplace(all_bytes_);
      source_ = user_source_->data();
    } else {
      std::memset(pages_.mine() + source_at_, 1, all_bytes_);
      source_ = pages_.mine() + source_at_;
    }
  }

  std::byte* source(Message message) const { return source_ + message.slot * bytes_; }
  void put(Message message) {
    std::memcpy(pages_.theirs() + target_at_ + message.slot * bytes_, source(message), bytes_);
    counter(pages_.theirs(), 0).store(message.number + 1, std::memory_order_release);
  }
  const std::byte* await(Message message) {
    if (arrived_ <= message.number) arrived_ = await_count(counter(pages_.mine(), 0), message.number + 1);
    return pages_.mine() + target_at_ + message.slot * bytes_;
  }

  void signal(Signal which) {
    counter(pages_.theirs(), index_of(which)).store(++signals_.at(index_of(which) - 1), std::memory_order_release);
  }
  std::uint64_t await(Signal which, std::uint64_t least) {
    return await_count(counter(pages_.mine(), index_of(which)), least);
  }

  void finish_run() {}

 protected:
  static std::size_t index_of(Signal which) { return 1 + static_cast<std::size_t>(which); }
  static Counter& counter(std::byte* pages, std::size_t index) {
    return *reinterpret_cast<Counter*>(pages + index * kLine);
  }

  const std::size_t bytes_;      // of a message
  const std::size_t all_bytes_;  // of all slots
  const std::size_t target_at_;
  const std::size_t source_at_;
  SharedPages pages_;
  std::optional<Pages> user_source_;
  std::byte* source_ = nullptr;
  std::uint64_t arrived_ = 0;               // messages of the peer that this rank has seen
  std::array<std::uint64_t, 2> signals_{};  // that this rank has sent, of each kind
};

/// A Link whose messages both ranks copy, each one half at the same time: a credit tells the receiver to begin. Source
/// and target are memory that both have mapped.
class SharedCopyLink : private FloorLink {
 public:
  SharedCopyLink(const Workload& workload, const LinkLayout& layout)
      : FloorLink(workload, {.slots = layout.slots, .signals = layout.signals + 1}, MemoryChoice::allocated),
        half_(round_up(bytes_ / 2, kLine)) {}

  void put(Message message) {
    signal(Signal::credit);
    std::memcpy(pages_.theirs() + target_at_, pages_.mine() + source_at_, std::min(half_, bytes_));
    counter(pages_.theirs(), 0).store(message.number + 1, std::memory_order_release);
  }
  const std::byte* await(Message message) {
    FloorLink::await(Signal::credit, message.number + 1);
    if (half_ < bytes_)
      std::memcpy(pages_.mine() + target_at_ + half_, pages_.theirs() + source_at_ + half_, bytes_ - half_);
    return FloorLink::await(message);
  }
  using FloorLink::finish_run;
  using FloorLink::source;

 private:
  const std::size_t half_;
};

}  // namespace

std::unique_ptr<Contender> make_floor_ping_pong(const Workload& workload) {
  return std::make_unique<LinkPingPong<FloorLink>>(workload, workload.options.memory);
}
std::unique_ptr<Contender> make_floor_flood(const Workload& workload) {
  return std::make_unique<LinkFlood<FloorLink>>(workload, workload.options.memory);
}
std::unique_ptr<Contender> make_shared_copy(const Workload& workload) {
  return std::make_unique<LinkPingPong<SharedCopyLink>>(workload);
}

}  // namespace bench
