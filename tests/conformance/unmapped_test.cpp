// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU that its owner's driver gives to other processes, and that the sender's driver refuses: the emulated
// one (tests/emucuda) refuses all on request. And the choice between several ways.
#include <sluice/device.hpp>

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "backends/transport.hpp"
#include "base/fd.hpp"
#include "device/driver.hpp"
#include "device/memory.hpp"
#include "tests/conformance/gpu_cases.hpp"
#include "tests/faults/killed.hpp"
#include "tests/faults/wrapped.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr std::uint64_t kRounds = 6;
constexpr std::size_t kUnmappedNames = 1;  // on the board, to the end: what the exporter's driver calls the memory

constexpr const char* kAround = "all goes through a bounce buffer in host memory";
constexpr const char* kRefusedHere = "cannot be mapped here (";
constexpr const char* kRefusedThere = "the peer cannot map (";
constexpr const char* kLands = "lands in host memory";

Peers peers_without_imports(const GpuCase& one) {
  Peers peers = peers_of(one);
  peers.environment = {"EMUCUDA_IMPORTS=0"};
  return peers;
}

/// True if the driver can refuse imports; in a rank.
bool refusing(const Context& context) {
  if (gpu_is_emulated()) return true;
  if (context.rank() == 0) skipped_here("imports that a driver refuses: no driver can be told to");
  return false;
}

/// A GPU's stream, or program order. The host looks at what is there.
class Order {
 public:
  explicit Order(const GpuCase& one) {
    if (!one.inline_order) stream_.emplace();
  }
  Stream stream() const { return stream_ ? stream_->stream() : Stream::program_order(); }
  GpuStream& gpu() { return stream_.value(); }

  void write(const Slice& slot, std::span<const std::byte> bytes) {
    stream_ ? stream_->copy(slot.data(), bytes.data(), bytes.size())
            : gpu_copy(slot.data(), bytes.data(), bytes.size());
  }
  std::vector<std::byte> read(const Slice& slot) {
    if (!stream_) return bytes_in_gpu(slot);
    std::vector<std::byte> bytes(slot.bytes());
    stream_->copy(bytes.data(), slot.data(), bytes.size());
    stream_->synchronize();
    return bytes;
  }

 private:
  std::optional<GpuStream> stream_;
};

/// Every other epoch puts a part.
backends::Range part_of(std::uint64_t epoch, std::size_t bytes) {
  return epoch % 2 == 0 ? backends::Range{3, bytes - 5} : backends::Range{0, bytes};
}

void put_one(Sender& sender, Order& order, const Stamp& stamp) {
  const Slice slot = sender.acquire(order.stream());
  std::vector<std::byte> bytes(slot.bytes());
  fill(bytes, stamp);
  order.write(slot, bytes);
  const auto part = part_of(stamp.epoch, slot.bytes());
  sender.put(order.stream(), part.offset, part.bytes);
}

void expect_one(Receiver& receiver, Order& order, const Stamp& stamp) {
  const Slice slot = receiver.wait(order.stream());
  std::vector<std::byte> bytes = order.read(slot);
  const std::span<std::byte> seen(bytes);
  const auto part = part_of(stamp.epoch, slot.bytes());
  EXPECT_EQ(unlike_poison(seen.first(part.offset)), "") << "before part " << stamp.epoch;
  EXPECT_EQ(difference(seen.subspan(part.offset, part.bytes), stamp, part.offset), "") << "epoch " << stamp.epoch;
  EXPECT_EQ(unlike_poison(seen.subspan(part.offset + part.bytes)), "") << "after part " << stamp.epoch;
  poison(bytes);
  order.write(slot, bytes);
  receiver.release(order.stream());
}

/// A channel each way between two ranks, with slots in memory of the case's kinds.
class BothWays {
 public:
  BothWays(Context& context, const GpuCase& one, Order& order, const ChannelOptions& options = {})
      : rank_(context.rank()), depth_(static_cast<std::uint64_t>(options.depth)), order_(order),
        source_(context, one.source, one.bytes * depth_), target_(context, one.target, one.bytes * depth_) {
    poison_in_gpu(target_.slice());
    board().meet(context);  // a GPU gives no memory behind a parked stream
    sender = context.sender(1 - rank_, kTag, source_.slice(), options);
    receiver = context.receiver(1 - rank_, kTag, target_.slice(), options);
  }

  /// So many times as many epochs as there are slots.
  void exchange(std::uint64_t times = 1) {
    for (std::uint64_t first = 1; first <= times * depth_; first += depth_) {
      for (std::uint64_t i = 0; i < depth_; ++i) put_one(sender, order_, {rank_, kTag, first + i});
      for (std::uint64_t i = 0; i < depth_; ++i) expect_one(receiver, order_, {1 - rank_, kTag, first + i});
    }
  }

 private:
  Rank rank_;
  std::uint64_t depth_;
  Order& order_;
  Piece source_;
  Piece target_;

 public:
  Sender sender;
  Receiver receiver;
};

class Unmapped : public testing::TestWithParam<GpuCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Unmapped);

/// Used on a GPU's stream.
class UnmappedOnStreams : public Unmapped {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(UnmappedOnStreams);

/// Used without one, by streams of the host.
class UnmappedForHosts : public Unmapped {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(UnmappedForHosts);

/// In small slots, of which the test says how many.
class UnmappedSmall : public Unmapped {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(UnmappedSmall);

/// One case for each kind of memory.
class UnmappedKinds : public Unmapped {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(UnmappedKinds);

TEST_P(Unmapped, gets_every_byte_through_host_memory_and_describe_says_why) {
  run_peers(peers_without_imports(GetParam()), [](Context& context) {
    if (!refusing(context)) return;
    const GpuCase& one = GetParam();
    Order order(one);
    ChannelOptions options{.depth = one.depth};
    if (one.depth > 1) options.stream = order.stream();  // what is named is mapped when it connects
    BothWays channels(context, one, order, options);
    channels.exchange(kRounds);
    context.synchronize(order.stream());
    expect_told(channels.sender.describe(), kRefusedHere);
    expect_told(channels.sender.describe(), kAround);
    expect_told(channels.receiver.describe(), kRefusedThere);
    expect_told(channels.receiver.describe(), kLands);
    board().meet(context);
  });
}

/// On streams of the host, which wait for the connection themselves.
TEST_P(UnmappedForHosts, is_reached_on_host_streams) {
  run_peers(peers_without_imports(GetParam()), [](Context& context) {
    if (!refusing(context)) return;
    const GpuCase& one = GetParam();
    HostStream host;
    const Stream stream = Stream::host(host);
    const std::size_t bytes = one.bytes * static_cast<std::size_t>(one.depth);
    const Piece target(context, one.target, bytes);
    if (context.rank() == 0) {
      const Memory source = context.allocate(bytes);
      Sender sender = context.sender(1, kTag, source.all(), {.depth = one.depth});
      for (std::uint64_t epoch = 1; epoch <= kRounds; ++epoch) {
        host.run([slot = sender.acquire(stream), epoch] { fill(bytes_of(slot), {0, kTag, epoch}); });
        sender.put(stream);
      }
      context.synchronize(stream);
      sender.close();
    } else {
      Receiver receiver = context.receiver(0, kTag, target.slice(), {.depth = one.depth});
      for (std::uint64_t epoch = 1; epoch <= kRounds; ++epoch) {
        host.run([slot = receiver.wait(stream), epoch] {
          std::vector<std::byte> seen(slot.bytes());
          gpu_copy(seen.data(), slot.data(), seen.size());
          EXPECT_EQ(difference(seen, {0, kTag, epoch}), "");
        });
        receiver.release(stream);
      }
      context.synchronize(stream);
      receiver.close();
    }
  });
}

/// In any order of closing, whatever the other rank has done by then.
TEST_P(Unmapped, is_closed_in_any_order) {
  run_peers(peers_without_imports(GetParam()), [](Context& context) {
    if (!refusing(context)) return;
    enum Manner : Tag { sender_first, receiver_first, nothing_put, never_met_a_receiver, never_met_a_sender, manners };
    const GpuCase& one = GetParam();
    Order order(one);
    const Piece piece(context, one.target, one.bytes);
    poison_in_gpu(piece.slice());
    for (Tag manner = 0; manner < manners; ++manner) {
      board().meet(context);
      const Tag tag = kTag + manner;
      const bool puts = manner == sender_first || manner == receiver_first;
      if (context.rank() == 0) {
        if (manner == never_met_a_sender) board().meet(context);
        Sender sender = context.sender(1, tag, piece.slice());
        if (puts) put_one(sender, order, {0, tag, 1});
        if (manner == nothing_put) sender.wait_connected();
        if (puts) sender.drain();
        if (manner == receiver_first) board().meet(context);
        sender.close();
        if (manner != receiver_first && manner != never_met_a_sender) board().meet(context);
      } else {
        if (manner == never_met_a_receiver) board().meet(context);
        Receiver receiver = context.receiver(0, tag, piece.slice());
        if (manner == sender_first || manner == nothing_put) board().meet(context);
        if (manner == nothing_put || manner == never_met_a_receiver) receiver.wait_connected();
        if (puts) expect_one(receiver, order, {0, tag, 1});
        context.synchronize(order.stream());
        receiver.close();
        if (manner == receiver_first || manner == never_met_a_sender) board().meet(context);
      }
    }
    board().meet(context);
  });
}

TEST_P(UnmappedSmall, may_have_many_small_slots) {
  run_peers(peers_without_imports(GetParam()), [](Context& context) {
    if (!refusing(context)) return;
    Order order(GetParam());
    BothWays channels(context, GetParam(), order, {.depth = 100});
    channels.exchange(2);
    context.synchronize(order.stream());
    board().meet(context);
  });
}

/// The copy into the GPU's memory may be behind the stream that waits for it, where there is one hardware queue, say.
/// Then other channels go on, the wait ends with its timeout, and no memory is released before the copy has completed.
TEST_P(UnmappedOnStreams, that_is_held_up_holds_up_nobody) {
  Peers peers = peers_without_imports(GetParam());
  peers.environment.insert(peers.environment.end(), {"CUDA_DEVICE_MAX_CONNECTIONS=1", "EMUCUDA_PRIORITIES=0"});
  peers.timeout = 2s;
  run_peers(with_untold(peers), [](Context& context) {
    if (!refusing(context)) return;
    const GpuCase& one = GetParam();
    const Stream order = Stream::program_order();
    const Rank other = 1 - context.rank();
    const Piece piece(context, one.target, one.bytes);
    const Memory here = context.allocate(one.bytes);
    if (context.rank() == 0) {
      Sender sender = context.sender(other, kTag, piece.slice());
      Receiver receiver = context.receiver(other, kTag + 1, here.all());
      board().await(kReady, 1);
      sender.put(order);
      board().set(kReady, 2);
      EXPECT_TRUE(receiver.wait_for(10s).has_value());
      EXPECT_EQ(difference(bytes_of(here.all()), {other, kTag + 1, 1}), "");
      board().meet(context);
    } else {
      GpuStream stream;
      GpuStream later;
      const PinnedBuffer word(sizeof(std::uint64_t));
      const device::WordOp wait{device::WordOp::Kind::wait, word.data(), 1};
      Receiver receiver = context.receiver(other, kTag, piece.slice());
      receiver.wait(stream.stream());
      device::driver(stream.stream().kind())->operate(later.stream().handle(), {&wait, 1});
      board().set(kReady, 1);
      board().await(kReady, 2);
      Sender sender = context.sender(other, kTag + 1, here.all());
      fill(bytes_of(sender.acquire(order)), {1, kTag + 1, 1});
      sender.put(order);
      sender.drain(10s);
      expect_code(Code::timeout, [&] { context.synchronize(stream.stream()); });
      expect_code(Code::timeout, [&] { receiver.close(50ms); });
      std::atomic_ref(*reinterpret_cast<std::uint64_t*>(word.data())).store(1);
      receiver.close();
      later.synchronize();
      board().meet(context);
    }
  });
}

/// Host forms too keep their limits then, and lose nothing.
TEST_P(UnmappedOnStreams, that_is_held_up_is_waited_for_no_longer_than_asked) {
  Peers peers = peers_without_imports(GetParam());
  peers.environment.insert(peers.environment.end(), {"CUDA_DEVICE_MAX_CONNECTIONS=1", "EMUCUDA_PRIORITIES=0"});
  run_peers(peers, [](Context& context) {
    if (!refusing(context)) return;
    const GpuCase& one = GetParam();
    const Rank other = 1 - context.rank();
    const Piece piece(context, one.target, one.bytes);
    if (context.rank() == 0) {
      Order order(one);
      Sender sender = context.sender(other, kTag, piece.slice());
      board().await(kReady, 1);
      put_one(sender, order, {0, kTag, 1});
      sender.drain(10s);
      board().meet(context);
    } else {
      GpuStream stream;
      GpuStream later;
      const PinnedBuffer word(sizeof(std::uint64_t));
      const device::WordOp wait{device::WordOp::Kind::wait, word.data(), 1};
      Receiver receiver = context.receiver(other, kTag, piece.slice(), {.stream = stream.stream()});
      receiver.wait_connected(10s);
      device::driver(stream.stream().kind())->operate(later.stream().handle(), {&wait, 1});
      board().set(kReady, 1);
      const auto began = std::chrono::steady_clock::now();
      EXPECT_FALSE(receiver.wait_for(300ms));
      EXPECT_FALSE(receiver.test());
      EXPECT_LT(std::chrono::steady_clock::now() - began, 3s);
      EXPECT_EQ(receiver.epoch(), 0U);
      std::atomic_ref(*reinterpret_cast<std::uint64_t*>(word.data())).store(1);
      EXPECT_TRUE(receiver.wait_for(10s));
      later.synchronize();
      EXPECT_EQ(difference(bytes_in_gpu(piece.slice()), {0, kTag, 1}), "");
      board().meet(context);
    }
  });
}

/// A context that keeps an error does nothing more: no word of what was given tells of its end, neither that of a copy
/// nor those of the program's stream.
TEST_P(UnmappedOnStreams, of_a_gpu_that_has_failed_is_closed_soon) {
  Peers peers = peers_without_imports(GetParam());
  peers.environment.insert(peers.environment.end(), {"CUDA_DEVICE_MAX_CONNECTIONS=1", "EMUCUDA_PRIORITIES=0"});
  peers.timeout = 60s;
  run_peers(peers, [](Context& context) {
    if (!refusing(context)) return;
    const GpuCase& one = GetParam();
    const Rank other = 1 - context.rank();
    const Piece piece(context, one.target, one.bytes);
    if (context.rank() == 0) {
      Sender sender = context.sender(other, kTag, piece.slice());
      board().await(kReady, 1);
      sender.put(Stream::program_order());
      board().set(kReady, 2);
      expect_code(Code::transport, [&] {
        sender.drain(20s);
        sender.acquire(Stream::program_order());
        sender.put(Stream::program_order());
        for (int epoch = 2; epoch <= one.depth; ++epoch) sender.put(Stream::program_order());
        sender.drain(20s);
      });
      board().meet(context);
    } else {
      GpuStream stream;
      Receiver receiver = context.receiver(other, kTag, piece.slice());
      receiver.wait(stream.stream());
      receiver.release(stream.stream());
      receiver.wait(stream.stream());
      board().set(kReady, 1);
      board().await(kReady, 2);
      fail_gpu_for_good();
      receiver.close(10s);
      expect_code(Code::transport, [&] { context.check(); });
      board().meet(context);
    }
  });
}

TEST_P(UnmappedKinds, is_logged_once) {
  Peers peers = peers_without_imports(GetParam());
  peers.environment.emplace_back("SLUICE_LOG=info");
  const Ended ended = end_of_peers(peers, [](Context& context) {
    if (!refusing(context)) return;
    const GpuCase& one = GetParam();
    const Piece piece(context, one.target, 2 * one.bytes);
    std::vector<Sender> senders;
    std::vector<Receiver> receivers;
    for (Tag i = 0; i < 2; ++i) {
      const Slice half = piece.slice().slice(i * one.bytes, one.bytes);
      if (context.rank() == 0) senders.push_back(context.sender(1, kTag + i, half));
      if (context.rank() == 1) receivers.push_back(context.receiver(0, kTag + i, half));
    }
    for (Sender& sender : senders) sender.wait_connected();
    board().meet(context);
  });
  EXPECT_EQ(ended.code, 0) << ended.text;
  const std::string line = "shm: memory of rank 1's GPU cannot be mapped, so puts go through host memory: ";
  const std::size_t at = ended.text.find(line);
  if (!gpu_is_emulated()) return;  // as its ranks have said
  ASSERT_NE(at, std::string::npos) << ended.text;
  EXPECT_EQ(ended.text.find(line, at + 1), std::string::npos) << ended.text;
}

TEST_P(UnmappedOnStreams, outlives_a_peer_that_is_killed) {
  Peers peers = peers_without_imports(GetParam());
  peers.keep_going = true;
  const Ended ended = end_of_peers(peers, [](Context& context) {
    const GpuCase& one = GetParam();
    Order order(one);
    {
      BothWays channels(context, one, order);
      channels.exchange();
      context.synchronize(order.stream());
      if (context.rank() == 1) die_when_ready();
      channels.receiver.wait(order.stream());
      board().set(kReady, 1);
      expect_code(Code::peer_lost, [&] { context.synchronize(order.stream()); });
    }
    const Piece more(context, one.target, one.bytes);  // the driver is as it was
    poison_in_gpu(more.slice());
  });
  expect_only_rank_1_killed(ended);
}

/// A plan works, but not captured; and kernels refuse the sender, with the reason.
TEST_P(UnmappedOnStreams, is_reached_by_plans_but_not_by_kernels) {
  run_peers(peers_without_imports(GetParam()), [](Context& context) {
    if (!refusing(context)) return;
    const GpuCase& one = GetParam();
    const Rank other = 1 - context.rank();
    Order order(one);
    const Piece source(context, one.source, 2 * one.bytes);
    const Piece target(context, one.target, 2 * one.bytes);
    const auto half = [&](const Piece& of, Tag i) { return of.slice().slice(i * one.bytes, one.bytes); };
    std::array<Sender, 2> senders;
    std::array<Receiver, 2> receivers;
    Plan plan = context.plan();
    for (Tag i = 0; i < 2; ++i) {
      senders.at(i) = context.sender(other, kTag + i, half(source, i));
      receivers.at(i) = context.receiver(other, kTag + i, half(target, i));
    }
    board().meet(context);
    senders[0].wait_connected();
    const auto refused = expect_code(Code::unsupported, [&] { senders[0].on_device(order.stream()); });
    if (refused) expect_told(refused->what(), kRefusedHere);
    for (Tag i = 0; i < 2; ++i) {
      plan.add(senders.at(i));
      plan.add(receivers.at(i));
    }
    plan.commit(order.stream());
    const auto not_captured =
        expect_code(Code::unsupported, [&] { GpuGraph(order.gpu(), [&] { plan.start(order.stream()); }); });
    if (not_captured) expect_told(not_captured->what(), kRefusedHere);
    for (std::uint64_t epoch = 1; epoch <= kRounds; ++epoch) {
      std::vector<std::byte> bytes(one.bytes);
      plan.acquire(order.stream());
      for (Tag i = 0; i < 2; ++i) {
        fill(bytes, {context.rank(), kTag + i, epoch});
        order.write(plan.slot(senders.at(i)), bytes);
      }
      plan.start(order.stream());
      plan.wait(order.stream());
      for (Tag i = 0; i < 2; ++i)
        EXPECT_EQ(difference(order.read(plan.slot(receivers.at(i))), {other, kTag + i, epoch}), "");
      plan.release(order.stream());
    }
    context.synchronize(order.stream());
    board().meet(context);
  });
}

std::vector<GpuCase> unmapped_cases() {
  std::vector<GpuCase> cases;
  for (const Ground& ground : gpu_grounds()) {
    if (ground.name != "shm") continue;
    for (const bool inline_order : {false, true}) {
      for (const Whose whose : {Whose::ours, Whose::users, Whose::pooled}) {
        if (by_hip() && whose == Whose::pooled) continue;  // which gives pools to no other process
        cases.push_back({ground, inline_order, whose, whose, 1, 13});
        cases.push_back({ground, inline_order, whose, whose, 3, 100'000});
      }
    }
  }
  return cases;
}

INSTANTIATE_IN_ITS_RANKS(Quick, Unmapped, testing::ValuesIn(unmapped_cases()), GpuCaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, UnmappedOnStreams, testing::ValuesIn(only(unmapped_cases(), on_gpu_stream)),
                         GpuCaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, UnmappedForHosts,
                         testing::ValuesIn(only(unmapped_cases(), [](const GpuCase& one) { return one.inline_order; })),
                         GpuCaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, UnmappedSmall,
                         testing::ValuesIn(only(unmapped_cases(), [](const GpuCase& one) { return one.depth == 1; })),
                         GpuCaseName());
INSTANTIATE_IN_ITS_RANKS(
    Quick, UnmappedKinds,
    testing::ValuesIn(only(unmapped_cases(), [](const GpuCase& one) { return on_gpu_stream(one) && one.depth == 1; })),
    GpuCaseName());

class Ways : public testing::TestWithParam<GpuCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Ways);

/// A sender without a GPU has no driver that could map anything.
TEST_P(Ways, of_a_sender_that_sees_no_gpu_lead_through_host_memory) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const GpuCase& one = GetParam();
    const Stream order = Stream::program_order();
    if (context.rank() == 0) {
      ::setenv("CUDA_VISIBLE_DEVICES", "", 1);  // before this process looks
      board().meet(context);
      const Memory source = context.allocate(one.bytes);
      Sender sender = context.sender(1, kTag, source.all());
      for (std::uint64_t epoch = 1; epoch <= kRounds; ++epoch) {
        fill(bytes_of(sender.acquire(order)), {0, kTag, epoch});
        sender.put(order);
      }
      expect_told(sender.describe(), kRefusedHere);
      expect_told(sender.describe(), kAround);
      sender.close();
    } else {
      GpuStream stream;
      const Piece target(context, one.target, one.bytes);
      board().meet(context);
      Receiver receiver = context.receiver(0, kTag, target.slice());
      for (std::uint64_t epoch = 1; epoch <= kRounds; ++epoch) {
        std::vector<std::byte> seen(one.bytes);
        stream.copy(seen.data(), receiver.wait(stream.stream()).data(), seen.size());
        stream.synchronize();
        EXPECT_EQ(difference(seen, {0, kTag, epoch}), "");
        receiver.release(stream.stream());
      }
      expect_told(receiver.describe(), kRefusedThere);
      context.synchronize(stream.stream());
      receiver.close();
    }
    board().meet(context);
  });
}

/// Rank 0 has opened a sender and is stopped before it can say which way it takes; rank 1 knows that end, and opens a
/// receiver.
class Undecided {
 public:
  explicit Undecided(Context& context) : piece_(context, GetParam().target, GetParam().bytes), order_(GetParam()) {
    const Memory here = context.allocate(64);
    poison_in_gpu(piece_.slice());
    board().meet(context);
    if (context.rank() == 0) {
      sender = context.sender(1, kTag, piece_.slice());
      Sender behind = context.sender(1, kTag + 1, here.all());
      behind.wait_connected();
      behind.close();
      can_be_stopped();
      board().await(kResumed, 1);
    } else {
      Receiver behind = context.receiver(0, kTag + 1, here.all());
      behind.wait_connected();  // so this process knows of the other end, which was opened before
      behind.close();
      stopped_ = stop();
      receiver = context.receiver(0, kTag, piece_.slice());
    }
  }

  void resume() const {
    ::kill(stopped_, SIGCONT);
    board().set(kResumed, 1);
  }
  void kill() const { ::kill(stopped_, SIGKILL); }
  void exchange(Context& context) {
    for (std::uint64_t epoch = 1; epoch <= kRounds; ++epoch) {
      if (context.rank() == 0) put_one(sender, order_, {0, kTag, epoch});
      if (context.rank() == 1) expect_one(receiver, order_, {0, kTag, epoch});
    }
    context.synchronize(order_.stream());
  }
  void open_again(Context& context) {
    if (context.rank() == 0) sender = context.sender(1, kTag, piece_.slice());
    if (context.rank() == 1) receiver = context.receiver(0, kTag, piece_.slice());
  }

 private:
  static constexpr std::size_t kResumed = 2;
  static const GpuCase& GetParam() { return testing::WithParamInterface<GpuCase>::GetParam(); }

  pid_t stopped_ = 0;
  Piece piece_;
  Order order_;

 public:
  Sender sender;
  Receiver receiver;
};

TEST_P(Ways, that_are_undecided_connect_nobody) {
  run_peers(peers_without_imports(GetParam()), [](Context& context) {
    Undecided channel(context);
    if (context.rank() == 1) {
      expect_for(50ms, [&] { return !channel.receiver.connected(); });
      expect_told(channel.receiver.describe(), "not connected yet");
      expect_code(Code::timeout, [&] { channel.receiver.wait_connected(Timeout::zero()); });
      EXPECT_FALSE(channel.receiver.test());
      channel.resume();
    }
    channel.exchange(context);
    board().meet(context);
  });
}

TEST_P(Ways, may_be_closed_undecided) {
  for (const Rank first : {0, 1}) {
    run_peers(peers_without_imports(GetParam()), [first](Context& context) {
      Undecided channel(context);
      if (context.rank() == 1) {
        if (first == 1) expect_code(Code::timeout, [&] { channel.receiver.close(Timeout::zero()); });
        channel.resume();
        if (first == 0) {
          EXPECT_FALSE(channel.receiver.wait_for(10s));
          EXPECT_TRUE(channel.receiver.closed());
        }
        channel.receiver.close();
      } else {
        channel.sender.close();
      }
      channel.open_again(context);
      channel.exchange(context);
      board().meet(context);
    });
  }
}

TEST_P(Ways, may_be_lost_undecided) {
  Peers peers = peers_without_imports(GetParam());
  peers.keep_going = true;
  const Ended ended = end_of_peers(peers, [](Context& context) {
    {
      Undecided channel(context);
      if (context.rank() == 0) return;
      channel.kill();
      expect_code(Code::peer_lost, [&] { channel.receiver.wait_connected(); });
      channel.receiver.close();
    }
    const Piece more(context, GetParam().target, GetParam().bytes);  // the driver is as it was
    poison_in_gpu(more.slice());
  });
  expect_only_killed(0, ended);
}

/// A GPU that one process uses and the other does not see has no number there.
TEST_P(Ways, to_a_gpu_that_is_hidden_are_found) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    if (context.rank() == 0) {
      board().set(kReady, static_cast<std::uint64_t>(gpus()) + 1);
    } else {
      board().await(kReady, 1);
      ::setenv("CUDA_VISIBLE_DEVICES", "1", 1);  // before this process looks
    }
    if (board().word(kReady) < 3) {
      if (context.rank() == 0) skipped_here("memory of a hidden GPU: there is only one");
      return;
    }
    Order order(GetParam());
    BothWays channels(context, GetParam(), order);
    channels.exchange();
    context.synchronize(order.stream());
    board().meet(context);
  });
}

TEST_P(Ways, that_fail_hold_nothing) {
  Peers peers = peers_of(GetParam());
  peers.ranks = 1;
  run_peers(peers, [](Context&) {
    constexpr std::size_t kNotGranular = 3;
    const GpuStream stream;
    device::Driver& driver = *device::driver(stream.stream().kind());
    const device::Allocation memory = device::allocate_on(driver, 0, 64);
    const device::GpuExport& share = memory.extent().segment->share;
    if (!share.fd) return skipped_here("what a driver gives as a descriptor: this one gives none");
    const auto open_files = [] {
      return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
    };
    const auto fail = [&] {
      const device::GpuExport again{share.names, base::Fd(::dup(share.fd.get()))};
      EXPECT_THROW(driver.map(again, kNotGranular), device::GpuError);
    };
    fail();
    const auto before = open_files();
    for (int i = 0; i < 3; ++i) fail();
    EXPECT_EQ(open_files(), before);
  });
}

/// How many pieces of memory of ours are mapped here.
std::size_t segments_mapped() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:sluice") != std::string::npos ? 1 : 0;
  return count;
}

TEST_P(Ways, that_are_not_taken_cost_no_memory) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    constexpr std::size_t kBytes = std::size_t{1} << 20;
    const Piece source(context, GetParam().source, 2 * kBytes);
    const Piece target(context, GetParam().target, 2 * kBytes);
    board().meet(context);
    std::vector<Sender> senders;
    std::vector<Receiver> receivers;
    std::size_t before = 0;
    for (Tag i = 0; i < 2; ++i) {
      before = segments_mapped();
      senders.push_back(context.sender(1 - context.rank(), kTag + i, source.slice().slice(i * kBytes, kBytes)));
      receivers.push_back(context.receiver(1 - context.rank(), kTag + i, target.slice().slice(i * kBytes, kBytes)));
      senders.back().wait_connected();
      receivers.back().wait_connected();
    }
    EXPECT_EQ(segments_mapped(), before);
    board().meet(context);
  });
}

using Words = std::array<std::uint64_t, sizeof(device::GpuNames) / sizeof(std::uint64_t)>;

/// If the importer is refused the driver's first way to a piece of memory, it takes the next.
TEST_P(Ways, are_tried_one_after_another) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    constexpr std::size_t kBytes = 64;
    const GpuStream stream;
    std::vector<std::byte> bytes(kBytes);
    if (context.rank() == 0) {
      const GpuBuffer buffer(kBytes);
      const device::Allocation piece = device::adopt(buffer.data(), kBytes);
      ASSERT_NE(piece.extent().segment, nullptr);
      const auto words = std::bit_cast<Words>(piece.extent().segment->share.names);
      for (std::size_t i = 0; i < words.size(); ++i) board().set(kUnmappedNames + i, words[i]);
      board().meet(context);
      board().meet(context);
      gpu_copy(bytes.data(), buffer.data(), kBytes);
      EXPECT_EQ(difference(bytes, {1, kTag, 1}), "");
      return;
    }
    board().meet(context);
    device::GpuExport share;
    Words words{};
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = board().word(kUnmappedNames + i);
    share.names = std::bit_cast<device::GpuNames>(words);
    share.fd = base::Fd(::memfd_create("nothing of a GPU", MFD_CLOEXEC));
    {
      const device::Mapping mapping(share, kBytes, device::driver(stream.stream().kind()));
      fill(bytes, {1, kTag, 1});
      gpu_copy(mapping.data(), bytes.data(), kBytes);
    }
    board().meet(context);
  });
}

std::vector<GpuCase> way_cases() {
  return only(unmapped_cases(), [](const GpuCase& one) { return on_gpu_stream(one) && one.depth == 3; });
}

INSTANTIATE_IN_ITS_RANKS(Quick, Ways, testing::ValuesIn(way_cases()), GpuCaseName());

class NamedStreams : public testing::TestWithParam<GpuCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(NamedStreams);

/// The engine maps for a named stream when it learns of the peer's end, or of the way: a failure then ends
/// the wait for the connection.
TEST_P(NamedStreams, that_cannot_be_reached_fail_their_channels) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const GpuCase& one = GetParam();
    const GpuStream stream;
    const Piece piece(context, one.source, one.bytes);
    refuse_reaching();
    board().meet(context);
    const ChannelOptions options{.stream = stream.stream()};
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, piece.slice(), options);
      expect_code(Code::out_of_resources, [&] { sender.wait_connected(5s); });
      board().meet(context);
    } else {
      Receiver receiver = context.receiver(0, kTag, piece.slice(), options);
      expect_code(Code::out_of_resources, [&] { receiver.wait_connected(5s); });
      board().meet(context);
    }
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, NamedStreams, testing::ValuesIn(one_case_on({"posted"})), GpuCaseName());

}  // namespace
