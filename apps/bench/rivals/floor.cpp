// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/rivals/floor.hpp"

#include "apps/bench/harness/buffers.hpp"
#include "apps/bench/rivals/shared_pages.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>

namespace bench {
namespace {

constexpr std::size_t kLine = 64;

// Lets the other side run if both share a core; on cores of their own a wait ends much earlier.
constexpr int kSpinsBeforeYield = 100000;

using Counter = std::atomic<std::uint64_t>;

std::size_t round_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

/// Memory that a rank shares: counters with a line each, then the target. The source is memory of the same kind as
/// Sluice's: pages of the same file, or malloc'ed. Both begin as Sluice's do, at a line, or from a page's size on at a
/// page.
class FloorMemory {
 public:
  FloorMemory(const Workload& workload, std::size_t counters, std::size_t bytes)
      : target_at_(round_up(counters * kLine, bytes >= kPage ? kPage : kLine)),
        source_at_(round_up(target_at_ + bytes, kPage)),
        pages_(workload.context, workload.peer, source_at_ + std::max<std::size_t>(bytes, 1)) {
    if (workload.options.memory == MemoryChoice::user) {
      user_.emplace(bytes);
    } else {
      std::memset(pages_.mine() + source_at_, 1, bytes);
    }
  }

  Counter& mine(std::size_t counter) { return *reinterpret_cast<Counter*>(pages_.mine() + counter * kLine); }
  Counter& theirs(std::size_t counter) { return *reinterpret_cast<Counter*>(pages_.theirs() + counter * kLine); }
  const std::byte* source() const { return user_ ? user_->data() : pages_.mine() + source_at_; }
  const std::byte* my_target() const { return pages_.mine() + target_at_; }
  std::byte* their_target() const { return pages_.theirs() + target_at_; }

 private:
  std::size_t target_at_;
  std::size_t source_at_;
  SharedPages pages_;
  std::optional<Pages> user_;
};

std::uint64_t await(const Counter& counter, std::uint64_t least) {
  for (int spins = 0;; ++spins) {
    const std::uint64_t value = counter.load(std::memory_order_acquire);
    if (value >= least) return value;
    if (spins >= kSpinsBeforeYield) ::sched_yield();
  }
}

class FloorPingPong : public Contender {
 public:
  explicit FloorPingPong(const Workload& workload)
      : workload_(workload), memory_(workload, 1, workload.bytes), source_(memory_.source()),
        my_target_(memory_.my_target()), their_target_(memory_.their_target()), my_flag_(memory_.mine(0)),
        their_flag_(memory_.theirs(0)) {}

  double run(long count) override {
    return timed([&] {
      for (long i = 0; i < count; ++i) {
        ++turn_;
        if (workload_.first) put();
        wait();
        if (!workload_.first) put();
      }
    });
  }

 private:
  void put() {
    std::memcpy(their_target_, source_, workload_.bytes);
    their_flag_.store(turn_, std::memory_order_release);
  }
  void wait() {
    await(my_flag_, turn_);
    use(workload_, my_target_);
  }

  const Workload workload_;
  FloorMemory memory_;
  const std::byte* const source_;
  const std::byte* const my_target_;
  std::byte* const their_target_;
  const Counter& my_flag_;
  Counter& their_flag_;
  std::uint64_t turn_ = 0;
};

// The target's counter 0 counts messages; the source's counter 0 counts credits and counter 1 answers.
class FloorFlood : public Contender {
 public:
  explicit FloorFlood(const Workload& workload)
      : workload_(workload), depth_(static_cast<std::uint64_t>(workload.depth)),
        credit_every_(std::max<std::uint64_t>(depth_ / 2, 1)), memory_(workload, 2, workload.bytes * depth_),
        source_(memory_.source()), my_target_(memory_.my_target()), their_target_(memory_.their_target()) {}

  double run(long count) override {
    return timed([&] {
      for (long i = 0; i < count; ++i) {
        ++windows_;
        if (workload_.first) {
          send_window();
        } else {
          receive_window();
        }
      }
    });
  }

 private:
  void send_window() {
    Counter& messages = memory_.theirs(0);
    for (int i = 0; i < workload_.window; ++i) {
      if (sent_ - credit_ >= depth_) credit_ = await(memory_.mine(0), sent_ - depth_ + 1);
      const std::size_t at = (sent_ % depth_) * workload_.bytes;
      std::memcpy(their_target_ + at, source_ + at, workload_.bytes);
      messages.store(++sent_, std::memory_order_release);
    }
    await(memory_.mine(1), windows_);
  }

  void receive_window() {
    Counter& credits = memory_.theirs(0);
    for (int i = 0; i < workload_.window; ++i) {
      const std::size_t at = (received_ % depth_) * workload_.bytes;
      if (seen_ <= received_) seen_ = await(memory_.mine(0), received_ + 1);
      use(workload_, my_target_ + at);
      if (++received_ % credit_every_ == 0) credits.store(received_, std::memory_order_release);
    }
    memory_.theirs(1).store(windows_, std::memory_order_release);
  }

  const Workload workload_;
  const std::uint64_t depth_;
  const std::uint64_t credit_every_;
  FloorMemory memory_;
  const std::byte* const source_;
  const std::byte* const my_target_;
  std::byte* const their_target_;
  std::uint64_t sent_ = 0;
  std::uint64_t credit_ = 0;  // the last one seen
  std::uint64_t received_ = 0;
  std::uint64_t seen_ = 0;  // messages that have arrived
  std::uint64_t windows_ = 0;
};

}  // namespace

std::unique_ptr<Contender> make_floor_ping_pong(const Workload& workload) {
  return std::make_unique<FloorPingPong>(workload);
}
std::unique_ptr<Contender> make_floor_flood(const Workload& workload) { return std::make_unique<FloorFlood>(workload); }

}  // namespace bench
