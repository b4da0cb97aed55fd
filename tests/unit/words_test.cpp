// SPDX-License-Identifier: Apache-2.0
// Words, and sleeping for them: between threads, and between processes through memory that both map.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <new>
#include <span>
#include <thread>
#include <vector>

#include "base/meanwhile.hpp"
#include "base/words.hpp"

namespace sluice::base {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Far longer than any machine needs; only a wake that never comes takes so long.
constexpr auto kLost = seconds(5);

/// Two words in memory that a fork shares.
struct Pair {
  struct Side {
    alignas(64) Word word;
    Parking parking;
  };
  std::array<Side, 2> sides;
};

class SharedPair {
 public:
  SharedPair() {
    void* memory = mmap(nullptr, sizeof(Pair), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    pair_ = ::new (memory) Pair;
  }
  ~SharedPair() { munmap(pair_, sizeof(Pair)); }
  SharedPair(const SharedPair&) = delete;
  SharedPair& operator=(const SharedPair&) = delete;
  Pair& operator*() const { return *pair_; }

 private:
  Pair* pair_;
};

/// Sleeps at once, without the spinning that hides a lost wake. False: the wake came too late, or never.
bool sleep_until_reached(Pair::Side& side, std::uint64_t at_least) {
  const auto deadline = Clock::now() + kLost;
  auto ready = [&] { return reached(side.word, at_least); };
  constexpr auto call = [](void* argument) { return (*static_cast<decltype(ready)*>(argument))(); };
  while (!ready() && Clock::now() < deadline) park(side.parking, call, &ready, deadline);
  return Clock::now() < deadline;
}

/// Raises its own word and sleeps for the other's, in turns. The delays slide the two ends along each other, so that
/// raising falls on every instruction of going to sleep.
bool ping_pong(Pair& pair, unsigned self, std::uint64_t rounds) {
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    for (std::uint64_t i = 0; i < (round * (self == 0 ? 7 : 13)) % 97; ++i) pause();
    raise(pair.sides[self].word, round, pair.sides[self].parking);
    if (!sleep_until_reached(pair.sides[1 - self], round)) return false;
  }
  return true;
}

TEST(Words, no_wake_is_lost_between_threads) {
  prepare_fences();
  for (int again = 0; again < 20; ++again) {
    SharedPair pair;
    bool theirs = false;
    std::thread other([&] { theirs = ping_pong(*pair, 1, 1000); });
    const bool ours = ping_pong(*pair, 0, 1000);
    other.join();
    ASSERT_TRUE(ours && theirs);
  }
}

TEST(Words, no_wake_is_lost_between_processes) {
  for (int again = 0; again < 20; ++again) {
    SharedPair pair;
    const pid_t child = fork();
    if (child == 0) {
      prepare_fences();
      _exit(ping_pong(*pair, 1, 1000) ? 0 : 1);
    }
    prepare_fences();
    const bool ours = ping_pong(*pair, 0, 1000);
    int status = -1;
    waitpid(child, &status, 0);
    ASSERT_TRUE(ours && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
}

/// Two threads store numbers that rise. Behind each store and its fence, a thread loads what the other one has stored:
/// of two such loads, one at least sees the other's store.
void expect_fences_to_pair() {
  constexpr int kLight = 1000000;
  constexpr int kHeavy = 200000;
  struct Side {
    explicit Side(int most) : seen(static_cast<std::size_t>(most) + 1) {}
    alignas(64) std::atomic<int> stored{0};
    std::atomic<bool> begun{false};
    std::vector<int> seen;
  };
  std::array<Side, 2> sides{Side(kLight), Side(kHeavy)};
  std::atomic<bool> over{false};
  const auto run = [&](Side& side, const Side& other, auto fence) {
    side.begun = true;
    while (!other.begun) std::this_thread::yield();
    for (int number = 1; number < static_cast<int>(side.seen.size()) && !over.load(std::memory_order_relaxed);
         ++number) {
      side.stored.store(number, std::memory_order_relaxed);
      fence();
      side.seen[static_cast<std::size_t>(number)] = other.stored.load(std::memory_order_relaxed);
    }
  };
  auto& [light, heavy] = sides;
  std::thread other([&] { run(heavy, light, heavy_fence); });
  run(light, heavy, light_fence);
  over = true;
  other.join();
  for (int number = 1; number <= kLight; ++number) {
    const int unseen = light.seen[static_cast<std::size_t>(number)] + 1;
    if (unseen > heavy.stored) break;
    ASSERT_GE(heavy.seen[static_cast<std::size_t>(unseen)], number) << unseen;
  }
}

TEST(Words, a_light_fence_is_a_full_one_beside_a_heavy_one) {
  constexpr int kTimes = 20;  // threads may run one after the other
  prepare_fences();
  for (int i = 0; i < kTimes; ++i) expect_fences_to_pair();
  kernel_has_fences = false;
  for (int i = 0; i < kTimes; ++i) expect_fences_to_pair();
  prepare_fences();
}

TEST(Words, one_raise_wakes_everybody) {
  SharedPair pair;
  std::array<bool, 4> woken{};
  std::array<std::thread, 4> sleepers;
  for (std::size_t i = 0; i < sleepers.size(); ++i) {
    sleepers[i] = std::thread([&, i] { woken[i] = sleep_until_reached((*pair).sides[0], 1); });
  }
  while ((*pair).sides[0].parking.sleepers.load() < sleepers.size()) std::this_thread::yield();
  raise((*pair).sides[0].word, 1, (*pair).sides[0].parking);
  for (auto& sleeper : sleepers) sleeper.join();
  for (const bool was : woken) EXPECT_TRUE(was);
}

/// Places that have one in common, as the pages of words of a process have, in memory that a fork shares.
struct Places {
  Parking common;
  std::array<Pair::Side, 3> sides;
  Pair::Side back;

  Places() {
    for (Pair::Side& side : sides) {
      const auto after = reinterpret_cast<std::byte*>(&side.parking) - reinterpret_cast<std::byte*>(&common);
      side.parking.after_common = static_cast<std::uint32_t>(after);
    }
  }
};

/// Sleeps for all words until the sum of them is `sum`.
bool sleep_for_any(Places& places, std::uint64_t sum) {
  std::array<Parking*, 3> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = &places.sides[i].parking;
  auto ready = [&] {
    std::uint64_t now = 0;
    for (Pair::Side& side : places.sides) now += side.word.value.load(std::memory_order_acquire);
    return now >= sum;
  };
  constexpr auto call = [](void* argument) { return (*static_cast<decltype(ready)*>(argument))(); };
  const auto deadline = Clock::now() + kLost;
  while (!ready() && Clock::now() < deadline) park_at_any(all, call, &ready, deadline);
  return Clock::now() < deadline;
}

/// Raises one word after the other, each time that the sleeper has answered.
bool raise_in_turn(Places& places, std::uint64_t rounds) {
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    for (std::uint64_t i = 0; i < (round * 13) % 97; ++i) pause();
    if (round % 100 == 0) std::this_thread::sleep_for(milliseconds(2));  // the sleeper's nap is over
    Pair::Side& side = places.sides[round % 3];
    raise(side.word, side.word.value.load() + 1, side.parking);
    if (!sleep_until_reached(places.back, round)) return false;
  }
  return true;
}

bool answer_each(Places& places, std::uint64_t rounds) {
  for (std::uint64_t round = 1; round <= rounds; ++round) {
    if (!sleep_for_any(places, round)) return false;
    raise(places.back.word, round, places.back.parking);
  }
  return true;
}

int g_times = 0;
void count_a_time() noexcept { ++g_times; }

/// Nothing wakes it: it looks each time it has done its work.
TEST(Words, a_wait_does_the_work_of_its_thread_asleep_and_awake) {
  Parking place;
  const std::array<Parking*, 1> places{&place};
  const auto end = Clock::now() + kLost;
  const Meanwhile work(&count_a_time);
  for (const bool several : {false, true}) {
    g_times = 0;
    auto often = [] { return g_times >= 5; };
    EXPECT_TRUE(several ? park_until(std::span<Parking* const>(places), often, end) : park_until(place, often, end));
  }
  g_times = 0;
  auto once = [] { return g_times > 0; };
  bool seen = false;
  while (!seen && Clock::now() < end) seen = spin_then_yield(once, end);  // another program may have the core meanwhile
  EXPECT_TRUE(seen);
  EXPECT_GT(g_times, 0);
  g_times = 0;
  {
    const Meanwhile nothing(nullptr);
    EXPECT_FALSE(Meanwhile::run());
  }
  EXPECT_TRUE(Meanwhile::run());
  EXPECT_EQ(g_times, 1);
}

TEST(Words, a_sleeper_for_several_is_woken_by_each) {
  void* const memory = mmap(nullptr, sizeof(Places), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  constexpr std::uint64_t kRounds = 2000;
  prepare_fences();
  for (const bool in_process : {false, true}) {
    auto* const places = ::new (memory) Places;
    bool theirs = false;
    std::thread thread;
    pid_t child = -1;
    if (in_process) {
      child = fork();
      if (child == 0) _exit(raise_in_turn(*places, kRounds) ? 0 : 1);
    } else {
      thread = std::thread([&] { theirs = raise_in_turn(*places, kRounds); });
    }
    const bool ours = answer_each(*places, kRounds);
    if (in_process) {
      int status = -1;
      waitpid(child, &status, 0);
      theirs = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    } else {
      thread.join();
    }
    EXPECT_TRUE(ours && theirs);
  }
  munmap(memory, sizeof(Places));
}

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)  // whose flag says so; which runs handlers late
/// A thread that goes to sleep for several words. In front of one of its instructions, a raiser announces itself.
struct Stepped {
  Places places;
  int left = 0;      // instructions until then
  int looks = 0;     // at the words
  bool all = false;  // all instructions before the first look were run
};
Stepped* g_stepped = nullptr;

/// Handler of SIGTRAP, which comes behind each instruction while the flag is set, and at first to set it.
void step(int, siginfo_t*, void* context) {
  constexpr greg_t kStepping = 0x100;
  greg_t& flags = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL];
  flags |= kStepping;
  g_stepped->all = g_stepped->looks > 0;
  if (!g_stepped->all && g_stepped->left-- > 0) return;
  flags &= ~kStepping;
  g_stepped->places.sides[1].parking.silence();
}

TEST(Words, a_sleeper_for_several_hears_of_a_raiser_that_wakes_no_thread_whenever_it_comes) {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_sigaction = step;
  action.sa_flags = SA_SIGINFO;
  ASSERT_EQ(sigaction(SIGTRAP, &action, &before), 0);
  constexpr auto look = [](void* looks) { return ++*static_cast<int*>(looks) >= 3; };  // one that sleeps on has two
  bool in_time = true;
  int instructions = 0;
  for (bool all = false; in_time && !all; ++instructions) {
    Stepped stepped;
    g_stepped = &stepped;
    std::array<Parking*, 3> places{};
    for (std::size_t i = 0; i < places.size(); ++i) places[i] = &stepped.places.sides[i].parking;
    stepped.left = instructions;
    const auto deadline = Clock::now() + kLost;
    ::raise(SIGTRAP);
    do {
      park_at_any(places, look, &stepped.looks, deadline);
    } while (stepped.looks < 3 && Clock::now() < deadline);
    in_time = stepped.looks >= 3;
    all = stepped.all;
  }
  sigaction(SIGTRAP, &before, nullptr);
  EXPECT_TRUE(in_time) << "slept on after " << instructions - 1 << " instructions";
  EXPECT_GT(instructions, 50) << "not stepped";
}
#endif

TEST(Words, a_sleeper_for_several_without_a_common_place_looks_now_and_then) {
  std::array<Pair::Side, 2> apart;
  std::array<Parking*, 2> places{&apart[0].parking, &apart[1].parking};
  std::thread raiser([&] {
    while (apart[1].parking.sleepers.load() == 0) std::this_thread::yield();
    std::this_thread::sleep_for(milliseconds(2));
    raise(apart[1].word, 1, apart[1].parking);
  });
  EXPECT_TRUE(wait_until(
      places, [&] { return reached(apart[1].word, 1); }, Clock::now() + kLost));
  raiser.join();
}

TEST(Words, what_was_written_before_a_raise_is_seen_after_it) {
  SharedPair pair;
  auto& side = (*pair).sides[0];
  auto& back = (*pair).sides[1];
  std::array<std::uint64_t, 64> payload{};
  std::thread writer([&] {
    for (std::uint64_t round = 1; round <= 2000; ++round) {
      payload.fill(round);
      raise(side.word, round, side.parking);
      wait_until(back.parking, [&] { return reached(back.word, round); });
    }
  });
  for (std::uint64_t round = 1; round <= 2000; ++round) {
    wait_until(side.parking, [&] { return reached(side.word, round); });
    for (const auto value : payload) ASSERT_EQ(value, round);
    raise(back.word, round, back.parking);
  }
  writer.join();
}

TEST(Words, poison_reaches_every_epoch) {
  Word word;
  Parking parking;
  EXPECT_FALSE(reached(word, 1));
  raise(word, kPoison, parking);
  EXPECT_TRUE(reached(word, 1));
  EXPECT_TRUE(reached(word, kPoison - 1));
  EXPECT_GT(static_cast<std::int64_t>(kPoison), 0);
}

TEST(Words, a_wait_ends_at_its_deadline_and_not_before) {
  Word word;
  Parking parking;
  const auto ready = [&] { return reached(word, 1); };
  const auto began = Clock::now();
  EXPECT_FALSE(wait_until(parking, ready, began + milliseconds(30)));
  EXPECT_GE(Clock::now() - began, milliseconds(30));
  raise(word, 1, parking);
  EXPECT_TRUE(wait_until(parking, ready, began));  // what is there is found, however late
}

// The second is what is measured.
TEST(Words, a_wait_for_nothing_uses_no_cpu) {
  Word word;
  Parking parking;
  rusage before{};
  rusage after{};
  getrusage(RUSAGE_THREAD, &before);
  wait_until(
      parking, [&] { return reached(word, 1); }, Clock::now() + seconds(1));
  getrusage(RUSAGE_THREAD, &after);
  const auto micros = [](const rusage& usage) {
    return 1'000'000 * (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + usage.ru_utime.tv_usec +
           usage.ru_stime.tv_usec;
  };
  EXPECT_LT(micros(after) - micros(before), 50'000);
}

}  // namespace
}  // namespace sluice::base
