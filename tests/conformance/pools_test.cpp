// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU's memory pools: when it is mapped and unmapped. Its owner may free it only after all ranks that have
// imported it; the emulated driver (tests/emucuda) ends a process that is too early.
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstdlib>

#include "base/fd.hpp"
#include "device/memory.hpp"
#include "tests/conformance/gpu_cases.hpp"
#include "tests/faults/killed.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr Tag kParkedTag = 152;
constexpr std::size_t kFirstHasClosed = 2;  // on the board: in which round the one that closes first has closed
constexpr std::size_t kFd = 3;              // the pool's descriptor, in process kPid
constexpr std::size_t kNames = 5;           // to the end: what the exporter's driver calls the memory

class Pools : public testing::TestWithParam<GpuCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Pools);

/// One epoch, and what is seen of it. All on `stream`: the driver may give another one the hardware queue of a stream
/// that waits.
void put_one(Sender& sender, const Slice& source, GpuStream& stream, const Stamp& stamp) {
  std::vector<std::byte> bytes(source.bytes());
  fill(bytes, stamp);
  stream.copy(source.data(), bytes.data(), bytes.size());
  sender.put(stream.stream());
}

void expect_one(Receiver& receiver, GpuStream& stream, const Stamp& stamp) {
  const Slice slot = receiver.wait(stream.stream());
  std::vector<std::byte> bytes(slot.bytes());
  stream.copy(bytes.data(), slot.data(), bytes.size());
  stream.synchronize();
  EXPECT_EQ(difference(bytes, stamp), "");
  receiver.release(stream.stream());
}

TEST_P(Pools, are_mapped_if_they_can_be_shared_and_describe_says_so) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const bool shared = GetParam().target == Whose::pooled;
    GpuStream stream;
    const Piece piece(context, GetParam().target, GetParam().bytes);
    board().meet(context);
    if (context.rank() == 0) {
      Sender sender = context.sender(1, kTag, piece.slice());
      put_one(sender, piece.slice(), stream, {0, kTag, 1});
      expect_told(sender.describe(), shared ? "copied by the stream into the target, which is mapped"
                                            : "gives to no other process, so all goes through a bounce buffer");
      context.synchronize(stream.stream());
    } else {
      Receiver receiver = context.receiver(0, kTag, piece.slice());
      expect_one(receiver, stream, {0, kTag, 1});
      expect_told(receiver.describe(), shared ? "lands in the target itself, which the peer maps"
                                              : "gives to no other process, so it lands in host memory");
    }
    board().meet(context);
  });
}

/// In any order of closing, and though a stream of the importer is parked all the time, during which other memory
/// cannot be unmapped.
TEST_P(Pools, may_free_what_is_closed) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    constexpr std::uint64_t kRounds = 6;
    const GpuCase& one = GetParam();
    GpuStream stream;
    GpuStream parked;
    const Piece source(context, one.source, one.bytes);
    const Piece last(context, one.target, one.bytes);
    if (context.rank() == 0) {
      Receiver waiting = context.receiver(1, kParkedTag, last.slice());
      board().meet(context);
      waiting.wait(parked.stream());
      for (std::uint64_t round = 1; round <= kRounds; ++round) {
        Sender sender = context.sender(1, kTag, source.slice());
        put_one(sender, source.slice(), stream, {0, kTag, round});
        if (round % 3 == 0) board().await(kFirstHasClosed, round);
        if (round % 3 == 1) {
          sender.drain();
          sender.close();
          board().set(kFirstHasClosed, round);
        }
      }
      context.synchronize(parked.stream());
    } else {
      Sender releases = context.sender(0, kParkedTag, last.slice());
      board().meet(context);
      for (std::uint64_t round = 1; round <= kRounds; ++round) {
        const Piece target(context, one.target, one.bytes);  // freed at the end of each round
        Receiver receiver = context.receiver(0, kTag, target.slice());
        expect_one(receiver, stream, {0, kTag, round});
        if (round % 3 == 1) board().await(kFirstHasClosed, round);
        receiver.close();
        if (round % 3 == 0) board().set(kFirstHasClosed, round);
      }
      releases.put(stream.stream());
      context.synchronize(stream.stream());
    }
    board().meet(context);
  });
}

/// Several channels on one piece, and on several of one pool: each goes on when others are closed and freed.
TEST_P(Pools, serve_several_channels) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    constexpr Tag kChannels = 4;
    const GpuCase& one = GetParam();
    const Rank other = 1 - context.rank();
    GpuStream stream;
    const Piece source(context, one.source, one.bytes);
    auto first = std::make_unique<Piece>(context, one.target, 2 * one.bytes);
    auto second = std::make_unique<Piece>(context, one.target, 2 * one.bytes);
    std::vector<Sender> senders;
    std::vector<Receiver> receivers;
    for (Tag i = 0; i < kChannels; ++i) {
      senders.push_back(context.sender(other, kTag + i, source.slice()));
      receivers.push_back(
          context.receiver(other, kTag + i, (i < 2 ? first : second)->slice().slice(i % 2 * one.bytes, one.bytes)));
    }
    board().meet(context);
    for (Tag closed = 0; closed < kChannels; ++closed) {
      for (Tag i = closed; i < kChannels; ++i) {
        put_one(senders[i], source.slice(), stream, {context.rank(), kTag + i, closed});
        expect_one(receivers[i], stream, {other, kTag + i, closed});
        context.synchronize(stream.stream());
      }
      senders[closed].close();
      receivers[closed].close();
      if (closed == 1) first.reset();
    }
    second.reset();
    board().meet(context);
  });
}

/// Rank 1 is killed; the other releases its memory, or frees the memory that it had imported.
TEST_P(Pools, outlive_a_peer_that_is_killed) {
  Peers peers = peers_of(GetParam());
  peers.keep_going = true;
  const Ended ended = end_of_peers(peers, [](Context& context) {
    const GpuCase& one = GetParam();
    GpuStream stream;
    const Rank other = 1 - context.rank();
    {
      const Piece source(context, one.source, one.bytes);
      const Piece target(context, one.target, one.bytes);
      Sender sender = context.sender(other, kTag, source.slice());
      Receiver receiver = context.receiver(other, kTag, target.slice());
      put_one(sender, source.slice(), stream, {context.rank(), kTag, 1});
      expect_one(receiver, stream, {other, kTag, 1});
      context.synchronize(stream.stream());
      if (context.rank() == 1) die_when_ready();
      receiver.wait(stream.stream());
      board().set(kReady, 1);
      expect_code(Code::peer_lost, [&] { context.synchronize(stream.stream()); });
    }
    const Piece more(context, one.target, one.bytes);  // the driver is as it was
    poison_in_gpu(more.slice());
  });
  expect_only_rank_1_killed(ended);
}

/// The importer uses another GPU, and sees that of the pool, or does not.
TEST_P(Pools, are_reached_by_the_other_gpu_of_an_importer) {
  run_on_two_gpus(GetParam(), [](Context& context) {
    const GpuCase& one = GetParam();
    GpuStream stream;
    const Rank other = 1 - context.rank();
    const Piece source(context, one.source, one.bytes);
    const Piece target(context, one.target, one.bytes);
    Sender sender = context.sender(other, kTag, source.slice());
    Receiver receiver = context.receiver(other, kTag, target.slice());
    board().meet(context);
    put_one(sender, source.slice(), stream, {context.rank(), kTag, 1});
    expect_one(receiver, stream, {other, kTag, 1});
    context.synchronize(stream.stream());
    board().meet(context);
  });
}

/// As drivers may that number the blocks of a pool, not its pieces.
Peers peers_that_recycle(const GpuCase& one) {
  Peers peers = peers_of(one);
  peers.environment = {"EMUCUDA_POOLS_RECYCLE=1"};
  return peers;
}

/// A channel that is closed may live on, and so may what is known of its memory, which may be freed by then.
TEST_P(Pools, may_give_an_address_again) {
  run_peers(peers_that_recycle(GetParam()), [](Context& context) {
    const GpuCase& one = GetParam();
    const PoolKind kind = one.target == Whose::pooled ? PoolKind::shareable : PoolKind::unshared;
    GpuStream stream;
    const Piece source(context, Whose::ours, 4 * one.bytes);
    std::vector<Sender> senders;
    std::vector<Receiver> receivers;
    std::byte* before = nullptr;
    Tag tag = kTag;
    for (const std::size_t bytes : {4 * one.bytes, one.bytes, one.bytes}) {
      board().meet(context);
      const Stamp stamp{0, ++tag, 1};
      if (context.rank() == 0) {
        senders.push_back(context.sender(1, tag, source.slice().slice(0, bytes)));
        put_one(senders.back(), source.slice().slice(0, bytes), stream, stamp);
        senders.back().close();
        continue;
      }
      const PooledBuffer target(kind, bytes);
      if (before != nullptr && gpu_is_emulated()) {
        EXPECT_EQ(target.data(), before);
      }
      before = target.data();
      receivers.push_back(context.receiver(0, tag, context.region(target.data(), bytes).all()));
      expect_one(receivers.back(), stream, stamp);
      context.synchronize(stream.stream());
      std::vector<std::byte> seen(bytes);
      gpu_copy(seen.data(), target.data(), bytes);
      EXPECT_EQ(difference(seen, stamp), "");
      receivers.back().close();
    }
    board().meet(context);
  });
}

/// A piece is released in the order of a stream, which a parked stream may hold up: where both share one
/// hardware queue, say. Rank 0 releases it then, and meanwhile opens and uses another channel on the host.
TEST_P(Pools, that_are_held_up_hold_up_nobody) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    constexpr Tag kOther = 153;
    const Stream order = Stream::program_order();
    const GpuCase& one = GetParam();
    const Rank other = 1 - context.rank();
    if (context.rank() == 0) {  // before this process looks
      ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
      ::setenv("EMUCUDA_PRIORITIES", "0", 1);
    }
    GpuStream stream;
    const Piece piece(context, one.target, one.bytes);
    const Piece mapped(context, Whose::ours, one.bytes);
    const Memory here = context.allocate(one.bytes);
    if (context.rank() == 0) {
      Sender sender = context.sender(other, kTag, piece.slice());
      Receiver waiting = context.receiver(other, kParkedTag, mapped.slice());
      put_one(sender, piece.slice(), stream, {0, kTag, 1});
      sender.drain();
      waiting.wait(stream.stream());
      board().set(kReady, 1);
      Receiver receiver = context.receiver(other, kOther, here.all());
      EXPECT_EQ(difference(bytes_of(receiver.wait(order)), {1, kOther, 1}), "");
      receiver.release(order);
      receiver.close();
      EXPECT_NE(context.region(piece.slice().data(), one.bytes).all().data(), nullptr);
      board().set(kReady, 2);
      context.synchronize(stream.stream());
      board().meet(context);
    } else {
      const Piece target(context, one.target, one.bytes);
      Receiver receiver = context.receiver(other, kTag, target.slice());
      Sender releases = context.sender(other, kParkedTag, mapped.slice());
      expect_one(receiver, stream, {0, kTag, 1});
      context.synchronize(stream.stream());
      board().await(kReady, 1);
      expect_code(Code::timeout,
                  [&] { receiver.close(Timeout::zero()); });  // rank 0 learns of it before any later message
      Sender sender = context.sender(other, kOther, here.all());
      fill(bytes_of(sender.acquire(order)), {1, kOther, 1});
      sender.put(order);
      board().await(kReady, 2);
      releases.put(stream.stream());
      receiver.close();
      context.synchronize(stream.stream());
      board().meet(context);
    }
  });
}

std::vector<GpuCase> cases_with(Whose whose) {
  std::vector<GpuCase> cases;
  for (const Ground& ground : gpu_grounds()) {
    if (ground.name == "shm") cases.push_back({ground, false, whose, whose, 1, 5000});
  }
  return cases;
}

std::vector<GpuCase> both_kinds() {
  std::vector<GpuCase> cases = cases_with(Whose::pooled);
  const std::vector<GpuCase> more = cases_with(Whose::unshared);
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

INSTANTIATE_IN_ITS_RANKS(Quick, Pools, testing::ValuesIn(both_kinds()), GpuCaseName());

class PoolImports : public testing::TestWithParam<GpuCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PoolImports);

using Words = std::array<std::uint64_t, sizeof(device::GpuNames) / sizeof(std::uint64_t)>;

void tell(const device::GpuExport& share) {
  const auto words = std::bit_cast<Words>(share.names);
  for (std::size_t i = 0; i < words.size(); ++i) board().set(kNames + i, words[i]);
  board().set(kPid, static_cast<std::uint64_t>(::getpid()));
  board().set(kFd, static_cast<std::uint64_t>(share.fd.get()));
}

device::GpuExport told() {
  device::GpuExport share;
  Words words{};
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = board().word(kNames + i);
  share.names = std::bit_cast<device::GpuNames>(words);
  const base::Fd process(static_cast<int>(::syscall(SYS_pidfd_open, board().word(kPid).load(), 0)));
  share.fd = base::Fd(static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), board().word(kFd).load(), 0)));
  return share;
}

/// Drivers may refuse a second import, or end both with the first free: contexts of one process map it together.
TEST_P(PoolImports, of_a_piece_are_one_for_a_process) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    constexpr std::size_t kBytes = 64;
    GpuStream stream;
    if (context.rank() == 0) {
      const PooledBuffer buffer(PoolKind::shareable, kBytes);
      const device::Allocation piece = device::adopt(buffer.data(), kBytes);
      const device::Extent& extent = piece.extent();
      ASSERT_NE(extent.segment, nullptr);
      tell(extent.segment->share);
      board().meet(context);
      board().meet(context);
      std::vector<std::byte> seen(kBytes);
      gpu_copy(seen.data(), buffer.data(), kBytes);
      EXPECT_EQ(difference(seen, {1, kTag, 1}), "");
      return;
    }
    board().meet(context);
    std::vector<std::byte> bytes(kBytes);
    fill(bytes, {1, kTag, 1});
    device::Driver& driver = *device::driver(Stream::Kind::cuda);
    for (int i = 0; i < 2; ++i) {  // again, once all have released it
      auto first = std::make_unique<device::Mapping>(told(), kBytes, &driver);
      const device::Mapping second(told(), kBytes, &driver);
      EXPECT_EQ(first->data(), second.data());
      first.reset();
      gpu_copy(second.data(), bytes.data(), kBytes);
    }
    board().meet(context);
  });
}

TEST_P(PoolImports, that_are_unknown_are_let_go_of_in_vain) {
  run_peers(peers_of(GetParam()), [](Context&) {
    const GpuStream stream;
    const PooledBuffer buffer(PoolKind::shareable, 64);
    device::driver(Stream::Kind::cuda)->unmap({0, buffer.data(), 64, 0, device::GpuMemory::Got::pooled});
    gpu_copy(buffer.data(), std::vector<std::byte>(64).data(), 64);
  });
}

/// A pool may be destroyed while there is memory of it, and another one be known by its handle.
TEST_P(PoolImports, of_two_pools_with_one_handle_are_told_apart) {
  run_peers(peers_that_recycle(GetParam()), [](Context& context) {
    constexpr std::size_t kBytes = 64;
    constexpr int kPools = 2;
    GpuStream stream;
    std::vector<std::byte> bytes(kBytes);
    if (context.rank() == 0) {
      std::vector<std::unique_ptr<PooledBuffer>> buffers;
      std::vector<device::Allocation> pieces;
      for (int i = 0; i < kPools; ++i) {
        const auto& buffer = buffers.emplace_back(std::make_unique<PooledBuffer>(PoolKind::shareable, kBytes));
        const device::Extent& extent = pieces.emplace_back(device::adopt(buffer->data(), kBytes)).extent();
        ASSERT_NE(extent.segment, nullptr);
        PooledBuffer::end_pool(PoolKind::shareable);
        tell(extent.segment->share);
        board().meet(context);
        board().meet(context);
      }
      board().meet(context);
      for (int i = 0; i < kPools; ++i) {
        gpu_copy(bytes.data(), buffers[static_cast<std::size_t>(i)]->data(), kBytes);
        EXPECT_EQ(difference(bytes, {1, kTag, static_cast<std::uint64_t>(i)}), "");
      }
      return;
    }
    std::vector<std::unique_ptr<device::Mapping>> mapped;
    for (int i = 0; i < kPools; ++i) {
      board().meet(context);
      mapped.push_back(std::make_unique<device::Mapping>(told(), kBytes, device::driver(Stream::Kind::cuda)));
      board().meet(context);
    }
    for (int i = 0; i < kPools; ++i) {
      fill(bytes, {1, kTag, static_cast<std::uint64_t>(i)});
      gpu_copy(mapped[static_cast<std::size_t>(i)]->data(), bytes.data(), kBytes);
    }
    mapped.clear();
    board().meet(context);
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, PoolImports, testing::ValuesIn(cases_with(Whose::pooled)), GpuCaseName());

}  // namespace
