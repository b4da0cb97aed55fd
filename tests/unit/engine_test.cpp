// SPDX-License-Identifier: Apache-2.0
// The engine's turns, with a transport that takes its time.
#include "runtime/engine.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <functional>
#include <future>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace sluice::runtime {
namespace {

using std::chrono::milliseconds;
using namespace std::chrono_literals;

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

/// Has a word to poll, which never changes. Counts the polls of other threads than the one that has made it.
class ListeningTransport final : public PolledTransport {
 public:
  int polls() const { return polls_; }

  backends::AfterTurn poll() override {
    if (std::this_thread::get_id() != maker_) ++polls_;
    return backends::AfterTurn::words;
  }

 private:
  const std::thread::id maker_ = std::this_thread::get_id();
  std::atomic<int> polls_{0};
};

/// Counts the rounds in which the engine's thread looks, and neither sleeps nor is woken.
class SleeplessDesk final : public Engine::SocketService {
 public:
  explicit SleeplessDesk(const ListeningTransport& transport) : transport_(transport) {}

  int prepare(std::vector<pollfd>&) override {
    sleeps_ = sleeps();
    polls_ = transport_.polls();
    return -1;
  }
  void serve(std::span<const pollfd> sockets) override {
    const bool woken = std::ranges::any_of(sockets, [](const pollfd& one) { return one.revents != 0; });
    if (!woken && sleeps() == sleeps_ && transport_.polls() > polls_) ++sleepless_;
  }
  int sleepless() const { return sleepless_; }

 private:
  static long sleeps() {
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
  }

  const ListeningTransport& transport_;
  long sleeps_ = 0;
  int polls_ = 0;
  std::atomic<int> sleepless_{0};
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
  ListeningTransport transport;
  SleeplessDesk desk(transport);
  Engine engine(desk, {});
  engine.add(transport);
  engine.start();
  std::this_thread::sleep_for(milliseconds(50));
  const int before = transport.polls();
  const int sleepless_before = desk.sleepless();
  const std::clock_t used_before = std::clock();
  const auto began = base::Clock::now();
  constexpr int kPolls = 200;
  while (base::Clock::now() < began + 400ms ||
         (transport.polls() < before + kPolls && base::Clock::now() < began + 20s))
    std::this_thread::sleep_for(milliseconds(20));
  const double used = static_cast<double>(std::clock() - used_before) / CLOCKS_PER_SEC;
  EXPECT_LT(used, std::chrono::duration<double>(base::Clock::now() - began).count() / 4) << "s of the processor's time";
  EXPECT_GE(transport.polls(), before + kPolls);
  EXPECT_LT(2 * (desk.sleepless() - sleepless_before), transport.polls() - before);
  // Something new: it polls without pauses again, unless another program has its processor meanwhile.
  constexpr int kEnough = 5;
  constexpr int kInTry = 3;  // a pause may end before it begins, but rarely
  int without_pauses = 0;
  for (int tries = 0; tries < 300 && without_pauses < kEnough; ++tries) {
    const int sleepless = desk.sleepless();
    engine.heard(backends::Haste::now);
    std::this_thread::sleep_for(milliseconds(20));
    if (desk.sleepless() - sleepless >= kInTry) ++without_pauses;
  }
  EXPECT_EQ(without_pauses, kEnough);
  engine.stop();
}

/// Never waits.
class IdleWatch final : public device::Watch {
 public:
  void fail(Code, const std::string&) noexcept override {}
  base::Clock::duration waited(const device::Wait&, base::Clock::duration, Timeout, base::WaitNote&) noexcept override {
    return std::chrono::seconds(60);
  }
};

/// Counts the looks of the engine's turns at what it fires.
class CountedBell final : public backends::Doorbell {
 public:
  explicit CountedBell(long& looks) : looks_(looks) {}
  bool awaited() const noexcept override {
    ++looks_;
    return false;
  }

 private:
  long& looks_;
};

/// A put without bytes, whose epochs complete when they are posted.
class CountedPut final : public backends::EnginePut {
 public:
  explicit CountedPut(long& looks) : EnginePut(of_all(), 4, 0) { share(std::make_shared<CountedBell>(looks), 0); }

  int posts() const { return posts_; }

  bool post(std::size_t, std::uint64_t epoch, backends::Range) override {
    ++posts_;
    over(epoch);
    return true;
  }
  bool landed(std::uint64_t) override { return true; }
  bool settled() override { return true; }
  std::string describe() const override { return {}; }

 private:
  static device::Watch& of_all() {
    static IdleWatch watch;
    return watch;
  }
  bool at_rest(std::size_t) override { return true; }

  int posts_ = 0;
};

/// Looks of 10 turns beside so many open puts, half of which give credits, after a ring of each. Each was posted once.
long looks_beside(std::size_t puts) {
  EmptyDesk desk;
  Engine engine(desk, {});
  long looks = 0;
  base::Word landed;
  std::vector<std::unique_ptr<CountedPut>> all;
  for (std::size_t i = 0; i < puts; ++i) {
    all.push_back(std::make_unique<CountedPut>(looks));
    if (i % 2 == 0) {
      engine.watch(*all.back());
    } else {
      engine.watch_credits(*all.back(), 4, landed);
    }
  }
  for (auto& put : all) put->enqueue({}, 1, {});
  engine.look();
  const long of_rings = looks;
  EXPECT_LE(of_rings, 8 * static_cast<long>(puts)) << "a ring of each";
  for (int turn = 0; turn < 10; ++turn) engine.look();
  for (auto& put : all) {
    EXPECT_EQ(put->posts(), 1);
    engine.forget(*put);
  }
  return looks - of_rings;
}

/// An engine that looked at all would make each of n openings and closings wait for n looks.
TEST(Engine, looks_only_at_what_was_rung_for) {
  for (const std::size_t puts : {10U, 500U, 1000U, 2000U}) EXPECT_EQ(looks_beside(puts), 0) << puts;
}

struct OwnEnd {
  IdleWatch end;
};

/// A put without bytes, with an end of its own, whose epochs complete when they are posted.
class OwnPut final : OwnEnd, public backends::EnginePut {
 public:
  static constexpr int kDepth = 4;

  explicit OwnPut(bool credit = false) : EnginePut(end, kDepth, 0), credit_(credit) {}

  void set_busy(bool busy) { busy_ = busy; }
  int heard_rings() const { return heard_rings_; }
  bool done(std::uint64_t epoch) const { return base::reached(end.done, epoch); }
  std::vector<const OwnPut*>* order = nullptr;  ///< of posts; null: it is not kept

  void heard() noexcept override { ++heard_rings_; }
  bool cumulative() const noexcept override { return credit_; }
  bool post(std::size_t, std::uint64_t epoch, backends::Range) override {
    if (busy_) return false;
    if (order != nullptr) order->push_back(this);
    over(epoch);
    return true;
  }
  bool landed(std::uint64_t) override { return true; }
  bool settled() override { return true; }
  std::string describe() const override { return {}; }

 private:
  bool at_rest(std::size_t) override { return true; }

  const bool credit_;
  bool busy_ = false;
  int heard_rings_ = 0;
};

/// A credit that is due may leave with another put, and be due again before the turn that finds it gone.
TEST(Engine, a_put_hears_the_rings_that_come_while_it_is_busy) {
  EmptyDesk desk;
  Engine engine(desk, {});
  OwnPut put;
  engine.watch(put);
  put.set_busy(true);
  put.enqueue({}, 1, {});
  EXPECT_EQ(put.heard_rings(), 1);
  put.enqueue({}, 2, {});
  EXPECT_EQ(put.heard_rings(), 2);
  EXPECT_FALSE(put.done(1));
  put.set_busy(false);
  engine.look();
  EXPECT_TRUE(put.done(2));
  engine.forget(put);
}

/// A reply is such a put: it delays no put of the program.
TEST(Engine, posts_what_gives_way_behind_the_puts_of_its_turn) {
  EmptyDesk desk;
  Engine engine(desk, {});
  std::vector<const OwnPut*> order;
  OwnPut reply;
  OwnPut put;
  for (OwnPut* one : {&reply, &put}) {
    engine.watch(*one);
    one->order = &order;
    one->set_busy(true);
  }
  engine.post_behind(reply);
  reply.enqueue({}, 1, {});
  put.enqueue({}, 1, {});
  reply.set_busy(false);
  put.set_busy(false);
  engine.look();
  EXPECT_EQ(order, (std::vector<const OwnPut*>{&put, &reply}));
  engine.forget(reply);
  engine.forget(put);
}

/// Opens puts, which another thread rings for, and closes each once its epochs have completed. The thread may still be
/// in its last ring then, and the next put gets the entry of its bell. Nothing but the rings wakes the engine.
void ring_and_close(Engine& engine, bool credits) {
  constexpr int kPuts = 100;
  const base::Word landed;
  std::atomic<OwnPut*> given{nullptr};
  std::atomic<bool> over{false};
  std::thread stream([&] {
    while (!over) {
      if (OwnPut* const put = given.exchange(nullptr); put != nullptr) {
        for (std::uint64_t epoch = 1; epoch <= OwnPut::kDepth; ++epoch) put->enqueue({}, epoch, {});
      } else {
        std::this_thread::yield();
      }
    }
  });
  std::vector<std::unique_ptr<OwnPut>> lost;
  for (int i = 0; i < kPuts && lost.empty(); ++i) {
    auto put = std::make_unique<OwnPut>(credits);
    if (credits) {
      engine.watch_credits(*put, OwnPut::kDepth, landed);
    } else {
      engine.watch(*put);
    }
    given = put.get();
    const auto limit = base::Clock::now() + std::chrono::seconds(20);
    while (!put->done(OwnPut::kDepth) && base::Clock::now() < limit) std::this_thread::yield();
    EXPECT_TRUE(put->done(OwnPut::kDepth)) << (credits ? "credits " : "puts ") << i;
    engine.forget(*put);
    if (!put->done(OwnPut::kDepth)) lost.push_back(std::move(put));  // its thread may still ring
  }
  over = true;
  stream.join();
}

TEST(Engine, loses_no_ring_of_threads_beside_ends_that_open_and_close) {
  EmptyDesk desk;
  Engine engine(desk, {});
  engine.start();
  std::thread other([&] { ring_and_close(engine, true); });
  ring_and_close(engine, false);
  other.join();
  engine.stop();
}

/// A network from which requests come, and what answers them.
class Requests final : public PolledTransport, public Engine::Responder {
 public:
  void send() { ++sent_; }
  std::uint64_t answered() const { return answered_; }
  std::thread::id answered_by() const { return by_; }
  std::function<void()> meanwhile;  ///< called while the first request is answered

  backends::AfterTurn poll() override {
    arrived_ = sent_.load();
    return backends::AfterTurn::nothing;
  }
  bool has_requests() noexcept override { return answered_ != arrived_; }
  void respond(bool) noexcept override {
    if (meanwhile && has_requests()) std::exchange(meanwhile, nullptr)();
    by_ = std::this_thread::get_id();
    answered_ = arrived_.load();
  }

 private:
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<std::uint64_t> arrived_{0};
  std::atomic<std::uint64_t> answered_{0};
  std::atomic<std::thread::id> by_{};
};

/// Without help of the calling thread.
bool is_answered(const Requests& requests, std::uint64_t sent) {
  const auto limit = base::Clock::now() + std::chrono::seconds(20);
  while (requests.answered() < sent && base::Clock::now() < limit) std::this_thread::yield();
  return requests.answered() >= sent;
}

/// No change of thread: a request needs a turn to arrive, and the thread that took it answers.
TEST(Engine, requests_are_answered_by_the_thread_that_waits) {
  EmptyDesk desk;
  Requests requests;
  Engine engine(desk, {});
  engine.add(requests);
  engine.watch(requests);
  requests.send();
  engine.help();
  EXPECT_EQ(requests.answered(), 1U);
  requests.send();
  engine.look();
  EXPECT_EQ(requests.answered(), 2U);
  EXPECT_EQ(requests.answered_by(), std::this_thread::get_id());
  engine.forget(requests);
  requests.send();
  engine.look();
  EXPECT_EQ(requests.answered(), 2U) << "it was forgotten";
}

/// A put may come from anywhere, also with locks that an answer would take.
TEST(Engine, requests_that_arrive_in_the_turn_of_a_put_are_answered_by_its_thread) {
  EmptyDesk desk;
  Requests requests;
  Engine engine(desk, {});
  OwnPut put;
  engine.add(requests);
  engine.watch(put);
  engine.watch(requests);
  requests.send();
  put.enqueue({}, 1, {});
  EXPECT_EQ(requests.answered(), 0U);
  engine.start();
  EXPECT_TRUE(is_answered(requests, 1));
  for (std::uint64_t epoch = 2; epoch <= 100; ++epoch) {
    requests.send();
    put.enqueue({}, epoch, {});
    EXPECT_TRUE(is_answered(requests, epoch)) << epoch;
    if (requests.answered() < epoch) break;
  }
  EXPECT_NE(requests.answered_by(), std::this_thread::get_id());
  engine.stop();
  engine.forget(requests);
  engine.forget(put);
}

/// Its thread does not wait for the one that answers, so that one looks again.
TEST(Engine, requests_that_arrive_while_another_thread_answers_are_answered) {
  EmptyDesk desk;
  Requests late;
  Requests first;
  Engine engine(desk, {});
  for (Requests* one : {&late, &first}) {
    engine.add(*one);
    engine.watch(*one);
  }
  first.meanwhile = [&] {
    std::thread([&] {
      late.send();
      engine.look();
    }).join();
  };
  first.send();
  engine.look();
  EXPECT_EQ(first.answered(), 1U);
  EXPECT_EQ(late.answered(), 1U);
  for (Requests* one : {&late, &first}) engine.forget(*one);
}

/// How many of the next credits leave at once.
int credits_at_once(PuttingOff& putting_off) {
  int count = 0;
  while (!putting_off.may()) ++count;
  return count;
}

TEST(PuttingOff, outlives_a_late_turn_after_many_in_time) {
  PuttingOff putting_off;
  for (int i = 0; i < 1000; ++i) putting_off.left(3us);
  putting_off.left(20ms);
  EXPECT_EQ(credits_at_once(putting_off), 0);
  putting_off.left(20ms);
  EXPECT_GT(credits_at_once(putting_off), 1000);
}

TEST(PuttingOff, is_tried_again_however_often_turns_are_late) {
  PuttingOff putting_off;
  for (int i = 0; i < 20; ++i) {
    putting_off.left(1ms);
    const int first = credits_at_once(putting_off);
    EXPECT_GT(first, 1000) << i;
    EXPECT_LT(first, 10000) << i;
  }
  putting_off.left(60us);
  EXPECT_LT(credits_at_once(putting_off), 1000);
}

}  // namespace
}  // namespace sluice::runtime
