// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/rivals_floor.hpp"

#include "apps/bench/buffers.hpp"
#include "apps/bench/shared_pages.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

namespace bench {
namespace {

constexpr std::size_t kLine = 64;

// Lets the other side run where both share a core; on cores of their own a wait ends long before.
constexpr int kSpinsBeforeYield = 100000;

using Counter = std::atomic<std::uint64_t>;

// The counter in the line `line` of shared memory.
Counter& counter(std::byte* memory, std::size_t line) { return *reinterpret_cast<Counter*>(memory + line * kLine); }

std::uint64_t await(const Counter& counter, std::uint64_t least) {
  for (int spins = 0;; ++spins) {
    const std::uint64_t value = counter.load(std::memory_order_acquire);
    if (value >= least) return value;
    if (spins >= kSpinsBeforeYield) ::sched_yield();
  }
}

// A flag in one line, the payload in others.
class FloorPingPong : public Contender {
 public:
  explicit FloorPingPong(const Case& one_case)
      : case_(one_case), pages_(one_case.context, one_case.peer, kLine + one_case.bytes), source_(one_case.bytes) {}

  double run(long count) override {
    return timed([&] {
      for (long i = 0; i < count; ++i) {
        ++turn_;
        if (case_.first) put();
        wait();
        if (!case_.first) put();
      }
    });
  }

 private:
  void put() {
    std::memcpy(pages_.theirs() + kLine, source_.data(), case_.bytes);
    counter(pages_.theirs(), 0).store(turn_, std::memory_order_release);
  }
  void wait() {
    await(counter(pages_.mine(), 0), turn_);
    use(case_, pages_.mine() + kLine);
  }

  const Case case_;
  SharedPages pages_;
  Pages source_;
  std::uint64_t turn_ = 0;
};

// In the target's memory, line 0 counts messages; in the source's, line 0 counts credits and line 1 answers.
class FloorFlood : public Contender {
 public:
  explicit FloorFlood(const Case& one_case)
      : case_(one_case), depth_(static_cast<std::uint64_t>(one_case.depth)),
        credit_every_(std::max<std::uint64_t>(depth_ / 2, 1)),
        pages_(one_case.context, one_case.peer, 2 * kLine + one_case.bytes * depth_), source_(one_case.bytes * depth_) {
  }

  double run(long count) override {
    return timed([&] {
      for (long i = 0; i < count; ++i) {
        ++windows_;
        if (case_.first) {
          send_window();
        } else {
          receive_window();
        }
      }
    });
  }

 private:
  void send_window() {
    Counter& messages = counter(pages_.theirs(), 0);
    for (int i = 0; i < case_.window; ++i) {
      if (sent_ - credit_ >= depth_) credit_ = await(counter(pages_.mine(), 0), sent_ - depth_ + 1);
      const std::size_t at = (sent_ % depth_) * case_.bytes;
      std::memcpy(pages_.theirs() + 2 * kLine + at, source_.data() + at, case_.bytes);
      messages.store(++sent_, std::memory_order_release);
    }
    await(counter(pages_.mine(), 1), windows_);
  }

  void receive_window() {
    Counter& credits = counter(pages_.theirs(), 0);
    for (int i = 0; i < case_.window; ++i) {
      const std::size_t at = (received_ % depth_) * case_.bytes;
      if (seen_ <= received_) seen_ = await(counter(pages_.mine(), 0), received_ + 1);
      use(case_, pages_.mine() + 2 * kLine + at);
      if (++received_ % credit_every_ == 0) credits.store(received_, std::memory_order_release);
    }
    counter(pages_.theirs(), 1).store(windows_, std::memory_order_release);
  }

  const Case case_;
  const std::uint64_t depth_;
  const std::uint64_t credit_every_;
  SharedPages pages_;
  Pages source_;
  std::uint64_t sent_ = 0;
  std::uint64_t credit_ = 0;  // the last that was seen
  std::uint64_t received_ = 0;
  std::uint64_t seen_ = 0;  // messages that are there
  std::uint64_t windows_ = 0;
};

}  // namespace

std::unique_ptr<Contender> make_floor_ping_pong(const Case& one_case) {
  return std::make_unique<FloorPingPong>(one_case);
}
std::unique_ptr<Contender> make_floor_flood(const Case& one_case) { return std::make_unique<FloorFlood>(one_case); }

}  // namespace bench
