// SPDX-License-Identifier: Apache-2.0
// Ranks that are killed, stopped or run out of something: their peers notice, the others go on, and nothing is left
// behind.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <set>
#include <thread>

#include "tests/faults/killed.hpp"
#include "tests/faults/limit.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr std::size_t kResumed = 2;  // on the board
constexpr std::size_t kGone = 3;
constexpr std::size_t kRound = 4;  // twice the number of the finished round, plus whether there is another
constexpr std::size_t kTaken = 5;  // the round whose epoch has arrived

/// A child that is not made another program has copies of all sockets of its parent: they stay open until the board
/// says otherwise. The child runs `first` before it waits for that.
template <class F>
void leave_sockets_to_a_child(F first) {
  if (::fork() != 0) return;
  ::alarm(60);
  for (const int output : {STDOUT_FILENO, STDERR_FILENO}) ::close(output);  // the test reads to their end
  first();
  board().await(kResumed, 1);
  ::_exit(0);
}

/// Returns when the process has ended and its parent has taken note.
void await_end_of(pid_t process) {
  while (::kill(process, 0) == 0) std::this_thread::sleep_for(1ms);
}

/// Asserts that a wait for the next epoch ends in time with the loss of rank 1.
void expect_wait_lost(Context& context, Receiver& receiver, Stream stream) {
  const auto wait = [&] {
    receiver.wait(stream);
    context.synchronize(stream);
  };
  expect_loss_of_rank_1(context, wait, stream);
}

/// Files in the places where a careless library leaves them.
std::set<std::string> left_in_public_places() {
  std::set<std::string> names;
  for (const char* const folder : {"/dev/shm", "/tmp", "/run/user"}) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
      const std::string name = entry.path().string();
      if (name.find("luice") != std::string::npos) names.insert(name);
    }
  }
  return names;
}

class Kill : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    before_ = left_in_public_places();
    const std::string why_not = why_not_kill(GetParam().ground);
    if (why_not.empty()) return;
    leave_out(why_not);
  }
  void TearDown() override {
    // Other programs may use this machine too, but each of their files goes again: only what is new and stays counts.
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    std::set<std::string> left = left_in_public_places();
    std::erase_if(left, [&](const std::string& name) { return before_.contains(name); });
    while (!left.empty() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(100ms);
      std::erase_if(left, [now = left_in_public_places()](const std::string& name) { return !now.contains(name); });
    }
    EXPECT_EQ(left, std::set<std::string>());
  }

  /// Prints one line for all tests that are left out for one reason: ./dev lists it once.
  static void leave_out(const std::string& what_and_why) {
    std::printf("SKIPPED-HERE: %s\n", what_and_why.c_str());
    GTEST_SKIP() << what_and_why;
  }

  static Peers ranks(int count) {
    Case one = GetParam();
    one.ranks = count;
    Peers peers = one.peers();
    peers.keep_going = true;
    peers.limit = 40s;
    return peers;
  }

 private:
  std::set<std::string> before_;
};

class ArmedKill : public Kill {
 protected:
  void SetUp() override {
    Kill::SetUp();
    if (GetParam().ground.name == "ofi_sockets")
      leave_out("ArmedKill over ofi_sockets: sockets may never say that a write to a dead rank has failed");
  }
};

/// On host streams that stop after a failure.
class KillOfStopping : public Kill {};

/// Ranks that are stopped and go on.
class StandingStill : public Kill {};

TEST_P(Kill, ends_the_waits_of_the_peers_and_leaves_healthy_pairs_alone) {
  expect_only_rank_1_killed(end_of_peers(ranks(4), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    const Stream stream = order.stream();
    const Buffer buffer(context, one, 4 * one.bytes);
    const auto part = [&](std::size_t i) { return buffer.all().slice(i * one.bytes, one.bytes); };
    const Rank other = context.rank() ^ 1;  // 0 with 1, 2 with 3
    Sender sender = context.sender(other, kTag, part(0));
    Receiver receiver = context.receiver(other, kTag, part(1));
    for (std::uint64_t epoch = 1; epoch <= 20; ++epoch) {
      order.run([slot = sender.acquire(stream), rank = context.rank(), epoch] {
        fill(bytes_of(slot), {rank, kTag, epoch});
      });
      sender.put(stream);
      order.run([slot = receiver.wait(stream), other, epoch] { expect_and_poison(slot, {other, kTag, epoch}); });
      receiver.release(stream);
    }
    if (context.rank() == 0) {
      const auto wait = [&] {
        if (one.host) {
          context.synchronize(stream);  // on a network, what is put may still be under way when its rank is killed
          board().set(kReady, 1);
        }
        receiver.wait(stream);
        board().set(kReady, 1);
        context.synchronize(stream);
      };
      if (!one.host) board().set(kReady, 1);
      expect_loss_of_rank_1(context, wait, stream);
      return;
    }
    context.synchronize(stream);
    if (context.rank() == 1) {
      die_when_ready();
    }
    for (std::uint64_t epoch = 21; epoch <= one.times(2000); ++epoch) {  // on, while the other pair dies
      order.run([slot = sender.acquire(stream), rank = context.rank(), epoch] {
        fill(bytes_of(slot), {rank, kTag, epoch});
      });
      sender.put(stream);
      receiver.wait(stream);
      receiver.release(stream);
      if (epoch % 50 == 0) context.synchronize(stream);
    }
    context.synchronize(stream);
    context.check();
  }));
}

TEST_P(Kill, is_noticed_although_a_forked_child_holds_the_sockets) {
  expect_only_rank_1_killed(end_of_peers(ranks(2), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    const Buffer buffer(context, one);
    if (context.rank() == 1) {
      Sender sender = context.sender(0, kTag, buffer.all());
      sender.wait_connected();
      leave_sockets_to_a_child([] {});
      die_when_ready();
    }
    Receiver receiver = context.receiver(1, kTag, buffer.all());
    receiver.wait_connected();
    board().set(kReady, 1);
    expect_wait_lost(context, receiver, order.stream());
    board().set(kResumed, 1);
  }));
}

/// Its sockets are open and have its greeting, but there is no process any more.
TEST_P(Kill, is_noticed_by_a_peer_that_comes_too_late_to_watch_the_process) {
  expect_only_rank_1_killed(end_of_peers(ranks(2), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    const Buffer buffer(context, one);
    if (context.rank() == 1) {
      const pid_t peer = stop();
      const Sender sender = context.sender(0, kTag, buffer.all());
      leave_sockets_to_a_child([peer, rank_1 = ::getpid()] {
        await_end_of(rank_1);
        board().set(kGone, 1);
        ::kill(peer, SIGCONT);
      });
      die();
    }
    can_be_stopped();
    board().await(kGone, 1);  // it is stopped somewhere in here
    Receiver receiver = context.receiver(1, kTag, buffer.all());
    expect_wait_lost(context, receiver, order.stream());
    board().set(kResumed, 1);
  }));
}

/// Without a descriptor the process cannot be watched: that is made good when there is one.
TEST_P(Kill, is_noticed_by_a_peer_that_had_no_descriptor_to_watch_the_process) {
  if (kSanitized) return skipped_here("a sanitizer needs descriptors to look at memory");
  expect_only_rank_1_killed(end_of_peers(ranks(2), [](Context& context) {
    Case one = GetParam();
    // If the user's memory cannot be mapped, the data of a large slot takes a descriptor of its own.
    if (one.user) one.bytes = std::min<std::size_t>(one.bytes, 4096);
    Order order(one);
    const Buffer buffer(context, one);
    if (context.rank() == 1) {
      can_be_stopped();
      board().await(kReady, 1);  // it is stopped somewhere in here
      leave_sockets_to_a_child([rank_1 = ::getpid()] {
        await_end_of(rank_1);
        board().set(kGone, 1);
      });
      die();
    }
    const pid_t peer = stop();
    Receiver receiver = context.receiver(1, kTag, buffer.all());
    std::optional<NoDescriptors> none(std::in_place, 1);  // one, for the peer's socket
    ::kill(peer, SIGCONT);
    expect_code(Code::timeout, [&] { receiver.wait_connected(300ms); });
    board().set(kReady, 1);
    board().await(kGone, 1);
    none.reset();
    expect_wait_lost(context, receiver, order.stream());
    board().set(kResumed, 1);
  }));
}

TEST_P(Kill, ends_puts_that_wait_for_a_credit_and_plans) {
  expect_only_rank_1_killed(end_of_peers(ranks(3), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    const Stream stream = order.stream();
    const Buffer buffer(context, one, 4 * one.bytes);
    const auto part = [&](std::size_t i) { return buffer.all().slice(i * one.bytes, one.bytes); };
    if (context.rank() == 1) {
      Receiver from_0 = context.receiver(0, kTag, part(0));
      Sender to_2 = context.sender(2, kTag, part(1));
      from_0.wait_connected();
      to_2.wait_connected();
      die_when_ready(2);
    }
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, part(2));
      sender.put(stream);
      board().word(kReady).fetch_add(1);
      expect_loss_of_rank_1(
          context,
          [&] {
            sender.put(stream);  // is never credited
            context.synchronize(stream);
          },
          stream);
      expect_code(Code::peer_lost, [&] { sender.put(stream); });
      expect_code(Code::peer_lost, [&] { sender.drain(); });
    } else {
      Receiver receiver = context.receiver(1, kTag, part(3));
      Plan plan = context.plan();
      plan.add(receiver).commit(stream);
      board().word(kReady).fetch_add(1);
      expect_loss_of_rank_1(
          context,
          [&] {
            plan.wait(stream);
            context.synchronize(stream);
          },
          stream);
    }
  }));
}

TEST_P(Kill, ends_host_forms) {
  expect_only_rank_1_killed(end_of_peers(ranks(2), [](Context& context) {
    const Case& one = GetParam();
    const Buffer buffer(context, one);
    if (context.rank() == 1) {
      Sender sender = context.sender(0, kTag, buffer.all());
      sender.wait_connected();
      die_when_ready();
    }
    Receiver receiver = context.receiver(1, kTag, buffer.all());
    receiver.wait_connected();
    board().set(kReady, 1);
    expect_loss_of_rank_1(context, [&] { receiver.wait_for(60s); });
    expect_code(Code::peer_lost, [&] { context.check(); });
    receiver.close();  // and closing does not wait
  }));
}

TEST_P(Kill, of_a_rank_that_has_not_opened_its_end_yet) {
  expect_only_rank_1_killed(end_of_peers(ranks(2), [](Context& context) {
    const Case& one = GetParam();
    if (context.rank() == 1) {
      die_when_ready();
    }
    Order order(one);
    const Buffer buffer(context, one);
    Sender sender = context.sender(1, kTag, buffer.all());
    if (one.opens_later()) {
      sender.put(order.stream());  // parked
      board().set(kReady, 1);
      expect_loss_of_rank_1(
          context, [&] { context.synchronize(order.stream()); }, order.stream());
    } else {
      board().set(kReady, 1);
      expect_loss_of_rank_1(context, [&] { sender.put(order.stream()); });  // the host waits
    }
  }));
}

/// The NIC has entries for one channel, and those of the dead are not lost.
TEST_P(ArmedKill, gives_back_what_was_armed_for_the_dead) {
  constexpr int kDepth = 3;
  Peers peers = ranks(3);
  peers.environment = {"SLUICE_TRIGGER_ENTRIES=" + std::to_string(kDepth)};
  expect_only_rank_1_killed(end_of_peers(peers, [](Context& context) {
    Case one = GetParam();
    one.depth = kDepth;
    const Buffer buffer(context, one);
    if (context.rank() == 1) {
      Receiver receiver = context.receiver(0, kTag, buffer.all(), {.depth = kDepth});
      receiver.wait_connected();
      die_when_ready();
    }
    if (context.rank() == 0) {
      HostStream host;
      const Stream stream = Stream::host(host);
      Sender sender = context.sender(1, kTag, buffer.all(), {.depth = kDepth});
      sender.wait_connected();
      host.run([] { board().await(kResumed, 1); });
      for (int i = 0; i < kDepth; ++i) sender.put(stream);
      board().set(kReady, 1);
      expect_loss_of_rank_1(context, [&] { sender.drain(); });
      board().set(kResumed, 1);
      expect_code(Code::peer_lost, [&] { context.synchronize(stream); });
      sender.close();
    }
    // The NIC takes its time to find out that the peer has died.
    std::string description;
    const auto deadline = Clock::now() + kNoticed;
    const auto is_armed = [&] { return description.ends_with("fired by the NIC"); };
    bool again = true;
    for (std::uint64_t round = 1; again; ++round) {
      if (context.rank() == 0) {
        Sender next = context.sender(2, kTag, buffer.all(), {.depth = kDepth});
        fill(bytes_of(next.acquire({})), {0, kTag, round});
        next.put({});
        description = next.describe();
        again = one.ground.arms && !is_armed() && Clock::now() < deadline;
        board().await(kTaken, round);
        board().set(kRound, 2 * round + static_cast<std::uint64_t>(again));
      } else {
        Receiver next = context.receiver(0, kTag, buffer.all(), {.depth = kDepth});
        expect_and_poison(next.wait({}), {0, kTag, round});
        board().set(kTaken, round);
        board().await(kRound, 2 * round);
        again = board().word(kRound) % 2 == 1;
      }
    }
    if (context.rank() == 0 && one.ground.arms) {
      EXPECT_TRUE(is_armed()) << description;
    }
  }));
}

/// It has announced its last epoch, which its stream has not come to.
TEST_P(Kill, of_a_sender_that_is_closing_ends_waits_for_what_it_has_announced) {
  expect_only_rank_1_killed(end_of_peers(ranks(2), [](Context& context) {
    const Case& one = GetParam();
    const Buffer buffer(context, one);
    if (context.rank() == 1) {
      Sender sender = context.sender(0, kTag, buffer.all());
      sender.wait_connected();
      HostStream host;
      host.run([] { board().await(kResumed, 1); });  // never
      sender.put(Stream::host(host));
      expect_code(Code::timeout, [&] { sender.close(50ms); });
      die_when_ready();
    }
    Order order(one);
    Receiver receiver = context.receiver(1, kTag, buffer.all());
    receiver.wait_connected();
    board().set(kReady, 1);
    expect_wait_lost(context, receiver, order.stream());
  }));
}

void put_until_rank_1_is_lost(Context& context, const Case& one, const Buffer& buffer) {
  Order order(one);
  Sender sender = context.sender(1, kTag, buffer.all());
  expect_loss_of_rank_1(context, [&] {
    for (int i = 0; i < 1'000'000; ++i) {
      sender.put(order.stream());
      context.synchronize(order.stream());
    }
  });
}

/// The victim dies with a copy into its memory under way: by the stream, by the bounce buffer or by the kernel.
TEST_P(Kill, during_a_large_copy) {
  expect_only_rank_1_killed(end_of_peers(ranks(2), [](Context& context) {
    Case one = GetParam();
    one.bytes = 16 * 1024 * 1024;
    const Buffer buffer(context, one);
    if (context.rank() == 1) {
      Receiver receiver = context.receiver(0, kTag, buffer.all());
      for (int i = 0; i < 3; ++i) {
        receiver.wait({});
        receiver.release({});
      }
      std::this_thread::sleep_for(300us);  // into the next copy, usually
      die();
    }
    put_until_rank_1_is_lost(context, one, buffer);
  }));
}

constexpr std::size_t kMuch = std::size_t{16} * 1024 * 1024;
constexpr std::size_t kSome = std::size_t{8} * 1024;  // the kernel may copy them, or the sender alone

/// The kernel copies into targets that cannot be mapped.
Peers with_kernel_copies(Peers peers) {
  peers.environment.emplace_back("SLUICE_BOUNCE_MAX=1");
  return peers;
}

/// Calls `pass()` again and again, and dies in one of the calls.
template <class Pass>
[[noreturn]] void die_passing(Pass pass) {
  std::atomic<int> passed{0};
  const std::thread killer([&] {
    while (passed < 3) std::this_thread::yield();
    std::this_thread::sleep_for(300us);
    die();
  });
  for (;; ++passed) pass();
}

void expect_lost_receiver(const Peers& peers, std::size_t bytes) {
  expect_only_rank_1_killed(end_of_peers(peers, [bytes](Context& context) {
    Case one = Kill::GetParam();
    one.bytes = bytes;
    const Buffer buffer(context, one);
    if (context.rank() == 1) {
      Receiver receiver = context.receiver(0, kTag, buffer.all());
      die_passing([&] {
        receiver.wait({});
        receiver.release({});
      });
    }
    put_until_rank_1_is_lost(context, one, buffer);
  }));
}

TEST_P(Kill, of_a_receiver_that_copies_a_part) { expect_lost_receiver(with_kernel_copies(ranks(2)), kMuch); }
TEST_P(Kill, of_a_receiver_of_some_KiB) { expect_lost_receiver(ranks(2), kSome); }

void expect_lost_sender(const Peers& peers, std::size_t bytes) {
  expect_only_rank_1_killed(end_of_peers(peers, [bytes](Context& context) {
    Case one = Kill::GetParam();
    one.bytes = bytes;
    const Buffer buffer(context, one);
    if (context.rank() == 1) {
      Sender sender = context.sender(0, kTag, buffer.all());
      die_passing([&] { sender.put({}); });
    }
    Order order(one);
    Receiver receiver = context.receiver(1, kTag, buffer.all());
    expect_loss_of_rank_1(context, [&] {
      for (int i = 0; i < 1'000'000; ++i) {
        receiver.wait(order.stream());
        receiver.release(order.stream());
        context.synchronize(order.stream());
      }
    });
  }));
}

TEST_P(Kill, of_a_sender_whose_receiver_copies_a_part) { expect_lost_sender(with_kernel_copies(ranks(2)), kMuch); }
TEST_P(Kill, of_a_sender_of_some_KiB) { expect_lost_sender(ranks(2), kSome); }

/// The dead rank never acknowledges, and no other channel waits for that.
void expect_stopped_holds_up_no_other(const Peers& peers, std::size_t bytes) {
  expect_only_rank_1_killed(end_of_peers(peers, [bytes](Context& context) {
    Case one = Kill::GetParam();
    one.bytes = bytes;
    one.depth = 2;
    Order order(one);
    const Stream stream = order.stream();
    const Buffer buffer(context, one);
    if (context.rank() == 1) {
      Receiver receiver = context.receiver(0, kTag, buffer.all(), {.depth = 2});
      receiver.wait({});
      can_be_stopped();
      board().await(kResumed, 1);  // never: it is stopped somewhere in here
    }
    if (context.rank() == 2) {
      Receiver receiver = context.receiver(0, kTag, buffer.all(), {.depth = 2});
      for (std::uint64_t epoch = 1; epoch <= 10; ++epoch) {
        order.run([slot = receiver.wait(stream), epoch] { expect_and_poison(slot, {0, kTag, epoch}); });
        receiver.release(stream);
      }
      return context.synchronize(stream);
    }
    const Buffer healthy(context, one);
    Sender to_1 = context.sender(1, kTag, buffer.all(), {.depth = 2});
    Sender to_2 = context.sender(2, kTag, healthy.all(), {.depth = 2});
    to_1.put(stream);
    const pid_t victim = stop();
    to_1.put(stream);
    context.synchronize(stream);
    ::kill(victim, SIGKILL);
    expect_loss_of_rank_1(
        context,
        [&] {
          to_1.put(stream);  // is never credited
          context.synchronize(stream);
        },
        stream);
    for (std::uint64_t epoch = 1; epoch <= 10; ++epoch) {
      order.run([slot = to_2.acquire(stream), epoch] { fill(bytes_of(slot), {0, kTag, epoch}); });
      to_2.put(stream);
    }
    to_2.drain();
    to_2.close();
    to_1.close();
  }));
}

TEST_P(Kill, with_a_put_under_way_holds_up_no_other) { expect_stopped_holds_up_no_other(ranks(3), 100'000); }
TEST_P(Kill, with_some_KiB_under_way_holds_up_no_other) { expect_stopped_holds_up_no_other(ranks(3), kSome); }

TEST_P(Kill, a_rank_that_is_stopped_is_not_dead) {
  run_peers(ranks(2), [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    const Stream stream = order.stream();
    const Buffer buffer(context, one);
    if (context.rank() == 1) {
      Sender sender = context.sender(0, kTag, buffer.all());
      sender.wait_connected();
      can_be_stopped();
      board().await(kResumed, 1);  // it is stopped somewhere in here
      fill(bytes_of(sender.acquire({})), {1, kTag, 1});
      sender.put({});
      return;
    }
    Receiver receiver = context.receiver(1, kTag, buffer.all());
    const pid_t victim = stop();
    expect_for(1500ms, [&] {
      context.check();
      std::this_thread::sleep_for(10ms);
      return !receiver.test();
    });
    board().set(kResumed, 1);
    ::kill(victim, SIGCONT);
    order.run([slot = receiver.wait(stream)] { expect_and_poison(slot, {1, kTag, 1}); });
    context.synchronize(stream);
  });
}

/// Its work stands 50,000 items ahead of a ring, of which rank 1 dies. It does not run what stands behind the failed
/// wait.
TEST_P(KillOfStopping, ends_a_host_stream_that_is_far_ahead) {
  expect_only_rank_1_killed(end_of_peers(ranks(3), [](Context& context) {
    constexpr int kSteps = 12'500;  // of four items
    const Case& one = GetParam();
    const auto fails = [](auto call) {
      try {
        call();
        return false;
      } catch (const Error&) {
        return true;
      }
    };
    const Rank right = (context.rank() + 1) % 3;
    const Rank left = (context.rank() + 2) % 3;
    std::atomic<int> ran{0};
    {
      HostStream host({.stop_after_failure = true});
      const Stream stream = Stream::host(host);
      const Buffer buffer(context, one, 2 * one.bytes);
      Sender sender = context.sender(right, kTag, buffer.all().slice(0, one.bytes));
      Receiver receiver = context.receiver(left, kTag, buffer.all().slice(one.bytes, one.bytes));
      sender.wait_connected();
      receiver.wait_connected();
      const auto step = [&] {
        sender.put(stream);
        receiver.wait(stream);
        host.run([&ran] { ++ran; });
        receiver.release(stream);
      };
      if (context.rank() == 1) {
        for (int i = 0; i < 10; ++i) step();
        context.synchronize(stream);
        board().await(kReady, 2);
        die();
      }
      for (int i = 0; i < kSteps; ++i) step();
      board().word(kReady).fetch_add(1);
      EXPECT_TRUE(fails([&] { context.synchronize(stream); }));
      while (fails([&] { context.check(); })) {
      }
    }
    EXPECT_LE(ran, 20) << "rank 1 has made 10 steps";
  }));
}

/// Rank 1 answers nothing. Eight ends that one exception destroys share one limit.
TEST_P(StandingStill, holds_up_an_exception_once) {
  static constexpr auto kOnce = 1s;
  Peers peers = ranks(2);
  peers.connect_timeout = kOnce;
  peers.keep_going = true;
  const Ended ended = end_of_peers(peers, [](Context& context) {
    constexpr int kEach = 4;
    const Case& one = GetParam();
    const Buffer buffer(context, one, 2 * kEach * one.bytes);
    const auto part = [&](int i) { return buffer.all().slice(static_cast<std::size_t>(i) * one.bytes, one.bytes); };
    const auto open = [&](std::vector<Sender>& senders, std::vector<Receiver>& receivers) {
      for (int i = 0; i < kEach; ++i) {
        const Tag tag = kTag + static_cast<Tag>(i);
        senders.push_back(context.sender(1 - context.rank(), tag, part(2 * i)));
        receivers.push_back(context.receiver(1 - context.rank(), tag, part(2 * i + 1)));
      }
      for (int i = 0; i < kEach; ++i) {
        senders[static_cast<std::size_t>(i)].wait_connected(15s);
        receivers[static_cast<std::size_t>(i)].wait_connected(15s);
      }
    };
    if (context.rank() == 1) {
      std::vector<Sender> senders;
      std::vector<Receiver> receivers;
      open(senders, receivers);
      can_be_stopped();
      board().await(kResumed, 1);  // it is stopped somewhere in here
      return;
    }
    const auto time_to_leave = [&](auto leave) {
      const auto began = Clock::now();
      try {
        leave();
      } catch (const std::runtime_error& thrown) {
        EXPECT_STRNE(thrown.what(), "");
      }
      return Clock::now() - began;
    };
    std::vector<Sender> senders;
    std::vector<Receiver> receivers;
    open(senders, receivers);
    const pid_t peer = stop();
    const auto once = time_to_leave([&] {
      const auto gone_senders = std::move(senders);
      const auto gone_receivers = std::move(receivers);
      throw std::runtime_error("as this test wants it");
    });
    EXPECT_GE(once, kOnce - 100ms);
    EXPECT_LT(once, 5 * kOnce);  // not eight times
    const auto again = time_to_leave([&] {
      const Sender another = context.sender(1, kTag + 100, part(0));  // the next exception is another one
      throw std::runtime_error("as this test wants it");
    });
    EXPECT_GE(again, kOnce - 100ms);
    ::kill(peer, SIGCONT);
    board().set(kResumed, 1);
  });
  EXPECT_FALSE(ended.hung);
  EXPECT_EQ(ended.code, 0) << ended.text;
}

/// The whole job stands still for longer than a wait may last; that time does not count.
TEST_P(StandingStill, as_a_whole_does_not_count_as_waiting) {
  static constexpr auto kLimit = 2s;
  constexpr std::size_t kPidOf = 10;  // on the board, and the next
  Peers peers = ranks(3);
  peers.timeout = kLimit;
  run_peers(peers, [](Context& context) {
    const Case& one = GetParam();
    Order order(one);
    const Buffer buffer(context, one);
    const auto mine = kPidOf + static_cast<std::size_t>(context.rank());
    if (context.rank() == 0) {
      Receiver receiver = context.receiver(1, kTag, buffer.all());
      receiver.wait_connected();
      board().set(mine, static_cast<std::uint64_t>(::getpid()));
      order.run([slot = receiver.wait(order.stream())] { expect_and_poison(slot, {1, kTag, 1}); });
      context.synchronize(order.stream());
    } else if (context.rank() == 1) {
      Sender sender = context.sender(0, kTag, buffer.all());
      sender.wait_connected();
      fill(bytes_of(sender.acquire({})), {1, kTag, 1});
      board().set(mine, static_cast<std::uint64_t>(::getpid()));
      board().await(kResumed, 1);
      sender.put({});
      sender.drain();
    } else {
      const auto both = [&](int signal) {
        for (const std::size_t word : {kPidOf, kPidOf + 1})
          ::kill(static_cast<pid_t>(board().word(word).load()), signal);
      };
      for (const std::size_t word : {kPidOf, kPidOf + 1}) board().await(word, 1);
      std::this_thread::sleep_for(50ms);  // rank 0 waits by then, usually
      both(SIGSTOP);
      std::this_thread::sleep_for(2 * kLimit);  // is what is tested
      both(SIGCONT);
      std::this_thread::sleep_for(100ms);  // rank 0 looks at its limit by then
      board().set(kResumed, 1);
    }
    board().meet(context);
  });
}

std::vector<Case> processes(std::vector<Case> cases) {
  std::erase_if(cases, [](const Case& one) { return !one.ground.processes; });
  return cases;
}
std::vector<Case> on_host_streams(std::vector<Case> cases) {
  std::erase_if(cases, [](const Case& one) { return !one.host || one.cuda; });
  return cases;
}
INSTANTIATE_IN_ITS_RANKS(Quick, KillOfStopping, testing::ValuesIn(on_host_streams(processes(stream_cases()))),
                         CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, StandingStill, testing::ValuesIn(on_host_streams(processes(stream_cases()))),
                         CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, Kill, testing::ValuesIn(processes(memory_cases())), CaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, ArmedKill, testing::ValuesIn(processes(stream_cases())), CaseName());
INSTANTIATE_IN_ITS_RANKS(Full, Kill, full_cases([] {
                           return processes(with_sizes(memory_cases(), {0, 8, 100'000}));
                         }),
                         CaseName());

}  // namespace
