// SPDX-License-Identifier: Apache-2.0
// The owner of a window, or a rank that uses it, is killed at a random instant of random accesses; or the peer of an
// end that closes is killed when it no longer writes to that end.
#include <signal.h>

#include <future>
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

/// An end of rank 0 closes while a host stream holds its work back. Rank 1 dies after its message Kind::let_go.
class KilledAfterLettingGo : public WithKills {
 protected:
  static Peers peers() {
    Peers peers = GetParam().peers();
    peers.keep_going = peers.untold = true;
    return peers;
  }
  /// The ends are connected. `enqueue(end, stream)` enqueues the work. The engine of rank 1 may treat the closings of
  /// `end` and `second` in one turn, in any order, but that of `third` follows in a later turn: once `third` is closed,
  /// the message for `end` has arrived.
  template <class End, class Enqueue>
  static void expect_loss_in_closing(Context& context, End end, End second, End third, Enqueue enqueue) {
    const Buffer slot(context, GetParam(), kWord);
    Receiver dies = context.receiver(1, kTag, slot.all());
    dies.wait_connected();
    HostStream host;
    std::promise<void> free;  // behind it: a test that fails lets the stream end
    host.run([freed = free.get_future().share()] { freed.wait(); });
    enqueue(end, Stream::host(host));
    expect_code(Code::timeout, [&] { end.close(0s); });
    second.close();
    third.close();
    board().set(kReady, 1);
    expect_loss_of_rank_1(context, [&] { dies.wait({}); });
    static_cast<void>(dies.describe());  // waits for the mutex under which rank 0 treats the loss
    free.set_value();
    expect_code(Code::peer_lost, [&] { host.synchronize(); });
    end.close();
  }
};

TEST_P(KilledAfterLettingGo, releases_targets) {
  expect_only_rank_1_killed(end_of_peers(peers(), [](Context& context) {
    const Buffer memory(context, GetParam(), 2 * kWord);
    if (context.rank() == 1) {
      const Window window = context.window(kWindow, memory.all().slice(0, kWord));
      const Sender dies = context.sender(0, kTag, memory.all().slice(kWord, kWord));
      die_when_ready();
    }
    const auto target = [&] {
      Target made = context.target(1, kWindow);
      made.wait_connected();
      return made;
    };
    expect_loss_in_closing(context, target(), target(), target(),
                           [&](Target& end, Stream stream) { end.put(stream, memory.all().slice(0, kWord), 0); });
  }));
}

TEST_P(KilledAfterLettingGo, releases_senders) {
  expect_only_rank_1_killed(end_of_peers(peers(), [](Context& context) {
    const Buffer memory(context, GetParam(), 4 * kWord);
    const auto slot = [&](int i) { return memory.all().slice(static_cast<std::size_t>(i) * kWord, kWord); };
    const auto tag = [](int i) { return kTag + 1 + static_cast<Tag>(i); };
    if (context.rank() == 1) {
      const Sender dies = context.sender(0, kTag, slot(3));
      std::vector<Receiver> receivers;
      for (int i = 0; i < 3; ++i) receivers.push_back(context.receiver(0, tag(i), slot(i)));
      die_when_ready();
    }
    const auto sender = [&](int i) {
      Sender made = context.sender(1, tag(i), slot(i));
      made.wait_connected();
      return made;
    };
    expect_loss_in_closing(context, sender(0), sender(1), sender(2),
                           [](Sender& end, Stream stream) { end.put(stream); });
  }));
}

/// Memory that is attached, which a stream of rank 1 has yet to use.
class KilledWithAttached : public WithKills {};

TEST_P(KilledWithAttached, memory_is_detached) {
  constexpr std::size_t kAt = 1024, kAttached = 20, kUsed = 21;  // the last two: on the board
  Peers peers = GetParam().peers();
  peers.keep_going = peers.untold = true;
  expect_only_rank_1_killed(end_of_peers(peers, [](Context& context) {
    const Buffer memory(context, GetParam(), 2 * kWord);
    const Slice own = memory.all().slice(0, kWord);
    if (context.rank() == 1) {
      board().await(kAttached, 1);
      HostStream host;
      Target target = context.target(0, kWindow);
      target.wait_connected();
      host.run([] { board().await(kReady, 2); });  // never
      target.put(Stream::host(host), own, kAt);
      board().set(kUsed, 1);
      die_when_ready();
    }
    Window window = context.window(kWindow, own);
    window.attach(kAt, memory.all().slice(kWord, kWord));
    board().set(kAttached, 1);
    board().await(kUsed, 1);
    expect_code(Code::timeout, [&] { window.detach(kAt, 10ms); });
    board().set(kReady, 1);
    window.detach(kAt, 50s);
    window.close();
  }));
}

/// The stream is the test's own.
std::vector<Case> with_any_memory() {
  std::vector<Case> cases = between_processes(of_windows());
  std::erase_if(cases, [](const Case& one) { return one.host || one.cuda; });
  return cases;
}

INSTANTIATE_IN_ITS_RANKS(Quick, KilledAfterLettingGo, testing::ValuesIn(with_any_memory()), CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, KilledWithAttached, testing::ValuesIn(with_any_memory()), CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, KilledAtRandom, testing::ValuesIn(between_processes(of_windows())), CaseName());

}  // namespace
