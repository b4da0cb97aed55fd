// SPDX-License-Identifier: Apache-2.0
// The engine's turns, with a transport that takes its time.
#include "runtime/engine.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <future>
#include <memory>
#include <semaphore>
#include <thread>
#include <utility>
#include <vector>

namespace sluice::runtime {
namespace {

using std::chrono::milliseconds;

/// No sockets.
class EmptyDesk final : public Engine::SocketService {
 public:
  int prepare(std::vector<pollfd>&) override { return -1; }
  void serve(std::span<const pollfd>) override {}
};

/// Has no peers: it is polled.
class PolledTransport : public backends::Transport {
 public:
  int rest(std::vector<pollfd>&) override { return kNoLimit; }

  bool reaches(const backends::Blob&, bool) const override { return false; }
  std::shared_ptr<const void> pin(const device::Extent&) override { return nullptr; }
  std::unique_ptr<backends::Link> connect(Rank, const backends::Blob&, bool) override { return nullptr; }
  void try_out(device::Driver&) override {}
};

/// Counts how often the engine's thread wakes.
class CountingDesk final : public Engine::SocketService {
 public:
  int prepare(std::vector<pollfd>&) override { return -1; }
  void serve(std::span<const pollfd>) override { ++wakes_; }
  int wakes() const { return wakes_; }

 private:
  std::atomic<int> wakes_{0};
};

/// Always has something under way.
class BusyTransport final : public PolledTransport {
 public:
  /// Polls by other threads than `thread`.
  void count_all_but(std::thread::id thread) { waiter_ = thread; }
  int polls_of_others() const { return polls_of_others_; }

  backends::AfterTurn poll() override {
    if (std::this_thread::get_id() != waiter_.load()) ++polls_of_others_;
    return backends::AfterTurn::work;
  }

 private:
  std::atomic<std::thread::id> waiter_{};
  std::atomic<int> polls_of_others_{0};
};

/// Its first poll takes until it may end, and finds nothing; the next finds what has arrived meanwhile.
class SlowTransport final : public PolledTransport {
 public:
  void await_first_poll() { polls_.acquire(); }
  void end_first_poll() { may_end_.release(); }
  bool found() const { return found_; }

  backends::AfterTurn poll() override {
    if (std::exchange(first_, false)) {
      polls_.release();
      may_end_.acquire();
    } else {
      found_ = true;
    }
    return backends::AfterTurn::nothing;
  }

 private:
  std::binary_semaphore polls_{0};
  std::binary_semaphore may_end_{0};
  bool first_ = true;
  bool found_ = false;
};

/// Has a word to poll, which never changes.
class ListeningTransport final : public PolledTransport {
 public:
  int polls() const { return polls_; }

  backends::AfterTurn poll() override {
    ++polls_;
    return backends::AfterTurn::words;
  }

 private:
  std::atomic<int> polls_{0};
};

TEST(Engine, a_look_waits_for_the_turn_of_another_and_takes_one_of_its_own) {
  EmptyDesk desk;
  SlowTransport transport;
  Engine engine(desk, {});
  engine.add(transport);
  std::thread other([&] { engine.help(); });
  transport.await_first_poll();
  std::binary_semaphore begun(0);
  auto look = std::async(std::launch::async, [&] {
    begun.release();
    engine.look();
    return transport.found();
  });
  begun.acquire();
  EXPECT_EQ(look.wait_for(milliseconds(200)), std::future_status::timeout);
  transport.end_first_poll();
  EXPECT_TRUE(look.get());
  other.join();
}

TEST(Engine, its_thread_sleeps_on_while_another_takes_the_turns) {
  CountingDesk desk;
  BusyTransport transport;
  transport.count_all_but(std::this_thread::get_id());
  Engine engine(desk, {});
  engine.add(transport);
  engine.start();
  // Another program may take this thread's processor for a while: then the engine's is right to wake.
  constexpr int kTries = 100;
  bool slept_on = false;
  for (int i = 0; i < kTries && !slept_on; ++i) {
    const int before = desk.wakes();
    const auto end = base::Clock::now() + milliseconds(20);
    while (base::Clock::now() < end) engine.help();
    slept_on = desk.wakes() - before <= 6;  // of 20
  }
  EXPECT_TRUE(slept_on);
  const int before = transport.polls_of_others();
  while (transport.polls_of_others() == before) std::this_thread::yield();  // it takes over
  engine.stop();
}

/// One that looked all the time would use the processor for all of it, and one that slept for ever would not look at
/// all.
TEST(Engine, polls_words_with_pauses) {
  EmptyDesk desk;
  ListeningTransport transport;
  Engine engine(desk, {});
  engine.add(transport);
  engine.start();
  std::this_thread::sleep_for(milliseconds(50));
  const int before = transport.polls();
  const std::clock_t used_before = std::clock();
  std::this_thread::sleep_for(milliseconds(400));
  EXPECT_LT(1000 * (std::clock() - used_before) / CLOCKS_PER_SEC, 100) << "ms of the processor's time";
  EXPECT_GT(transport.polls() - before, 5);
  // Something new: it polls without pauses again, unless another program has its processor meanwhile.
  bool without_pauses = false;
  for (int tries = 0; tries < 300 && !without_pauses; ++tries) {
    std::this_thread::sleep_for(milliseconds(20));
    engine.heard(backends::Haste::now);
    const auto begin = base::Clock::now();
    const int then = transport.polls();
    std::this_thread::sleep_for(milliseconds(2));
    const int polls = transport.polls() - then;
    without_pauses = polls > 20 && polls * std::chrono::microseconds(100) > base::Clock::now() - begin;
  }
  EXPECT_TRUE(without_pauses);
  engine.stop();
}

}  // namespace
}  // namespace sluice::runtime
