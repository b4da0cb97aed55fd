// SPDX-License-Identifier: Apache-2.0
// The owner of a window, or a rank that uses it, is killed at a random instant of random accesses.
#include <signal.h>

#include <random>

#include "tests/conformance/random_seed.hpp"
#include "tests/conformance/windows.hpp"
#include "tests/faults/killed.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

class KilledAtRandom : public WithKills {
 protected:
  static constexpr std::size_t kBytes = 50000;
  static constexpr Rank kVictim = 1;

  static Peers peers() {
    Case of_some = GetParam();
    of_some.ranks = 3;
    Peers peers = of_some.peers();
    peers.keep_going = peers.untold = true;
    peers.limit = 60s;
    return peers;
  }
  /// Some access. None with a notice: they would wait for the owner.
  static void access(Target& target, Stream stream, const Slice& local, std::mt19937_64& random) {
    const std::size_t bytes = random() % (std::size_t{2} << random() % 15) % (kBytes - 64);
    const Slice some = local.slice(64, bytes);
    switch (random() % 6) {
      case 0: return target.put(stream, some, 64);
      case 1: return target.get(stream, some, 64);
      case 2: return target.fetch_add(stream, 8 * (random() % 4), 1, local.slice(0, 8));
      case 3: return target.put_notify(stream, some, 64, 0);
      case 4: return target.get_notify(stream, some, 64, 0);
      default: return target.flush(stream);
    }
  }
  /// Dies after a while, once all are ready; meanwhile calls `work()`.
  template <class Work>
  [[noreturn]] static void die_at_random(std::mt19937_64& random, Work work) {
    board().await(kReady, 2);
    const auto end = Clock::now() + std::chrono::microseconds(random() % 20'000);
    while (Clock::now() < end) work();
    die();
  }
};

TEST_P(KilledAtRandom, owners_release_all_who_access_their_window) {
  const std::uint64_t seed = random_seed();
  expect_only_rank_1_killed(end_of_peers(peers(), [=](Context& context) {
    std::mt19937_64 random(seed + static_cast<std::uint64_t>(context.rank()));
    test::Order order(GetParam());
    const Buffer memory(context, GetParam(), kBytes);
    if (context.rank() == kVictim) {
      const Window window = context.window(kWindow, memory.all(), 1);
      die_at_random(random, [] { std::this_thread::yield(); });
    }
    Target target = context.target(kVictim, kWindow);
    target.wait_connected();
    board().word(kReady).fetch_add(1);
    expect_loss_of_rank_1(context, [&] {
      for (;;) {
        for (int i = 0; i < 10; ++i) access(target, order.stream(), memory.all(), random);
        target.flush(order.stream());
        context.synchronize(order.stream());
      }
    });
    target.close();
  }));
}

TEST_P(KilledAtRandom, ranks_that_access_a_window_release_its_owner) {
  const std::uint64_t seed = random_seed();
  expect_only_rank_1_killed(end_of_peers(peers(), [=](Context& context) {
    constexpr std::size_t kReleased = 20, kOthersDone = 21;  // on the board
    std::mt19937_64 random(seed + static_cast<std::uint64_t>(context.rank()));
    test::Order order(GetParam());
    const Buffer memory(context, GetParam(), kBytes);
    Window window;
    if (context.rank() == 0) window = context.window(kWindow, memory.all(), 1);
    Target target = context.target(0, kWindow);
    target.wait_connected();
    if (context.rank() == kVictim) die_at_random(random, [&] { access(target, order.stream(), memory.all(), random); });
    board().word(kReady).fetch_add(1);
    if (context.rank() == 0) {
      expect_code(Code::peer_lost, [&] { static_cast<void>(window.wait_for(0, 1'000'000'000, 50s)); });
      board().set(kReleased, 1);
      board().await(kOthersDone, 1);
      target.close();
      window.close();
    } else {
      while (board().word(kReleased).load() == 0) {  // the window stays open for it
        access(target, order.stream(), memory.all(), random);
        target.flush(order.stream());
        context.synchronize(order.stream());
      }
      static_cast<void>(target.bytes());
      target.close();
      board().set(kOthersDone, 1);
    }
  }));
}

INSTANTIATE_IN_ITS_RANKS(Quick, KilledAtRandom, testing::ValuesIn(between_processes(of_windows())), CaseName());

}  // namespace
