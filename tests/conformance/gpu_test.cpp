// SPDX-License-Identifier: Apache-2.0
// Memory of GPUs, and what only their streams do. Runs where there is a GPU, and elsewhere on an emulated one
// (tests/emucuda), whose memory the processor cannot touch.
#include <sluice/device.hpp>

#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>

#include "device/driver.hpp"
#include "tests/conformance/gpu_cases.hpp"
#include "tests/conformance/released.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr std::uint64_t kGpuEpochs = 20;

std::vector<GpuCase> gpu_cases() {
  std::vector<GpuCase> cases;
  for (const Ground& ground : gpu_grounds()) {
    for (const bool inline_order : {false, true}) {
      for (const auto& [source, target] :
           {std::pair(Whose::ours, Whose::ours), std::pair(Whose::users, Whose::users),
            std::pair(Whose::hosts, Whose::ours), std::pair(Whose::ours, Whose::hosts)}) {
        cases.push_back({ground, inline_order, source, target, 1, 13});
        cases.push_back({ground, inline_order, source, target, 3, 100'000});
      }
    }
    const bool mapped = ground.name == "threads" || ground.name == "shm";
    if (mapped || (ground.arms && ground.network)) {  // no network reads the emulated GPU's memory
      cases.push_back({ground, false, Whose::hosts, Whose::hosts, 1, 13});
      cases.push_back({ground, false, Whose::hosts, Whose::hosts, 3, 100'000});
    }
    if (!mapped) continue;
    cases.push_back({ground, false, Whose::pooled, Whose::pooled, 1, 13});
    cases.push_back({ground, false, Whose::pooled, Whose::pooled, 3, 100'000});
    cases.push_back({ground, false, Whose::unshared, Whose::unshared, 3, 100'000});
  }
  return cases;
}

/// All that memory of pools can do.
std::vector<GpuCase> pool_cases() {
  std::vector<GpuCase> cases;
  for (const Ground& ground : gpu_grounds()) {
    for (const bool inline_order : {false, true}) {
      for (const auto& [source, target] :
           {std::pair(Whose::pooled, Whose::pooled), std::pair(Whose::unshared, Whose::unshared),
            std::pair(Whose::pooled, Whose::ours), std::pair(Whose::hosts, Whose::pooled)}) {
        cases.push_back({ground, inline_order, source, target, 1, 13});
        cases.push_back({ground, inline_order, source, target, 3, 100'000});
      }
    }
  }
  return cases;
}

bool in_small_slots(const GpuCase& one) { return on_gpu_stream(one) && one.depth == 1; }

struct GpuPart {
  std::size_t offset;
  std::size_t bytes;
};

void expect_only(const GpuPart& part, std::span<const std::byte> slot, const Stamp& stamp) {
  EXPECT_EQ(unlike_poison(slot.first(part.offset)), "") << "before part " << stamp.epoch;
  EXPECT_EQ(difference(slot.subspan(part.offset, part.bytes), stamp, part.offset), "") << "epoch " << stamp.epoch;
  EXPECT_EQ(unlike_poison(slot.subspan(part.offset + part.bytes)), "") << "after part " << stamp.epoch;
}

/// The order of a case, with what stands for a user's kernels: they fill a slot, and look at one.
class UserKernels {
 public:
  UserKernels(Context& context, const GpuCase& one) : one_(one) {
    if (!one.inline_order) stream_ = std::make_unique<GpuStream>();
    // As large as all epochs: a copy reads what is there when it happens, not when it is enqueued.
    bytes_ = context.allocate(one.bytes * (kGpuEpochs + 1), Space::pinned);
    test::poison(of_epoch(0));
  }

  Stream stream() const { return stream_ == nullptr ? Stream() : stream_->stream(); }

  void fill(const Slice& slot, const Stamp& stamp) {
    const std::span<std::byte> bytes = of_epoch(stamp.epoch);
    test::fill(bytes, stamp);
    copy(slot.data(), bytes.data());
  }

  void poison(const Slice& slot) { copy(slot.data(), of_epoch(0).data()); }

  void expect(const Slice& slot, const Stamp& stamp) { expect({0, one_.bytes}, slot, stamp); }
  void expect(const GpuPart& part, const Slice& slot, const Stamp& stamp) {
    const std::span<std::byte> bytes = of_epoch(stamp.epoch);
    copy(bytes.data(), slot.data());
    const auto look = [=] { expect_only(part, bytes, stamp); };
    if (stream_ == nullptr) return look();
    stream_->run(look);
  }

 private:
  std::span<std::byte> of_epoch(std::uint64_t epoch) const {
    return bytes_of(bytes_.slice(epoch * one_.bytes, one_.bytes));
  }
  void copy(std::byte* to, const std::byte* from) {
    if (stream_ == nullptr) return gpu_copy(to, from, one_.bytes);
    stream_->copy(to, from, one_.bytes);
  }

  GpuCase one_;
  std::unique_ptr<GpuStream> stream_;
  Memory bytes_;
};

class GpuMemory : public testing::TestWithParam<GpuCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuMemory);

/// Not in program order.
class GpuMemoryOnStreams : public GpuMemory {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuMemoryOnStreams);

/// GpuMemory in small slots: a part is a byte.
class GpuMemoryInParts : public GpuMemory {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuMemoryInParts);

void exchange_epochs(Context& context, const GpuCase& one, const std::function<void(const Sender&)>& look) {
  const std::size_t bytes = one.bytes * static_cast<std::size_t>(one.depth);
  const Piece source(context, one.source, bytes);
  const Piece target(context, one.target, bytes);
  UserKernels kernels(context, one);
  const Rank other = 1 - context.rank();
  board().meet(context);                  // a GPU gives no memory behind a parked stream
  const Stream named = kernels.stream();  // mapped when it connects
  Sender sender = context.sender(other, kTag, source.slice(), {.depth = one.depth, .stream = named});
  Receiver receiver = context.receiver(other, kTag, target.slice(), {.depth = one.depth, .stream = named});
  for (std::uint64_t epoch = 1; epoch <= kGpuEpochs; ++epoch) {
    kernels.fill(sender.acquire(kernels.stream()), {context.rank(), kTag, epoch});
    sender.put(kernels.stream());
    kernels.expect(receiver.wait(kernels.stream()), {other, kTag, epoch});
    receiver.release(kernels.stream());
  }
  context.synchronize(kernels.stream());
  look(sender);
  board().meet(context);
}

TEST_P(GpuMemory, gets_every_byte_of_every_epoch_in_order) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    exchange_epochs(context, GetParam(), [](const Sender& sender) {
      EXPECT_EQ(sender.describe().find("no GPU"), std::string::npos) << sender.describe();
    });
  });
}

/// A host that enqueues far more than there are slots.
TEST_P(GpuMemoryOnStreams, is_not_overwritten_by_a_sender_that_runs_ahead) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const GpuCase& one = GetParam();
    const std::size_t bytes = one.bytes * static_cast<std::size_t>(one.depth);
    UserKernels kernels(context, one);
    if (context.rank() == 0) {
      const Piece source(context, one.source, bytes);
      board().meet(context);
      Sender sender = context.sender(1, kTag, source.slice(), {.depth = one.depth});
      for (std::uint64_t epoch = 1; epoch <= kGpuEpochs; ++epoch) {
        kernels.fill(sender.acquire(kernels.stream()), {0, kTag, epoch});
        sender.put(kernels.stream());
      }
      board().set(0, 1);
      context.synchronize(kernels.stream());
      if (one.source == Whose::hosts && one.target == Whose::hosts && !one.ground.network) {
        EXPECT_NE(sender.describe().find("by a host function of the stream"), std::string::npos) << sender.describe();
      }
      board().meet(context);
    } else {
      const Piece target(context, one.target, bytes);
      board().meet(context);
      Receiver receiver = context.receiver(0, kTag, target.slice(), {.depth = one.depth});
      receiver.wait_connected();
      board().await(0, 1);
      for (std::uint64_t epoch = 1; epoch <= kGpuEpochs; ++epoch) {
        kernels.expect(receiver.wait(kernels.stream()), {0, kTag, epoch});
        receiver.release(kernels.stream());
      }
      context.synchronize(kernels.stream());
      board().meet(context);
    }
  });
}

TEST_P(GpuMemory, keeps_what_is_outside_a_part) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const GpuCase& one = GetParam();
    const std::size_t bytes = one.bytes * static_cast<std::size_t>(one.depth);
    const std::vector<GpuPart> parts = {{one.bytes / 3, one.bytes / 2}, {0, one.bytes / 4}, {0, 0}};
    UserKernels kernels(context, one);
    std::uint64_t epoch = 0;
    if (context.rank() == 0) {
      const Piece source(context, one.source, bytes);
      board().meet(context);
      Sender sender = context.sender(1, kTag, source.slice(), {.depth = one.depth});
      for (const GpuPart& part : parts) {
        kernels.fill(sender.acquire(kernels.stream()), {0, kTag, ++epoch});
        sender.put(kernels.stream(), part.offset, part.bytes);
      }
      context.synchronize(kernels.stream());
      board().meet(context);
    } else {
      const Piece target(context, one.target, bytes);
      poison_in_gpu(target.slice());
      board().meet(context);
      Receiver receiver = context.receiver(0, kTag, target.slice(), {.depth = one.depth});
      for (const GpuPart& part : parts) {
        const Slice slot = receiver.wait(kernels.stream());
        kernels.expect(part, slot, {0, kTag, ++epoch});
        kernels.poison(slot);
        receiver.release(kernels.stream());
      }
      context.synchronize(kernels.stream());
      board().meet(context);
    }
  });
}

/// All of them in one go: the NIC of tests can be armed for one at a time, the receiver has a slot for each.
TEST_P(GpuMemoryInParts, gets_parts_that_are_rung_for_before_they_can_be_armed) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const GpuCase& one = GetParam();
    const auto part_of = [&](std::uint64_t epoch) { return GpuPart{epoch % one.bytes, 1}; };
    constexpr Stamp kStamp{0, kTag, 1};
    GpuStream stream;
    if (context.rank() == 0) {
      const Piece source(context, one.source, one.bytes);
      std::vector<std::byte> bytes(one.bytes);
      fill(bytes, kStamp);
      gpu_copy(source.slice().data(), bytes.data(), one.bytes);
      board().meet(context);
      Sender sender = context.sender(1, kTag, source.slice(), {.stream = stream.stream()});
      sender.wait_connected();
      std::atomic<bool> may_go{false};
      stream.run([&] { may_go.wait(false); });
      for (std::uint64_t epoch = 1; epoch <= kGpuEpochs; ++epoch) {
        const GpuPart part = part_of(epoch);
        sender.put(stream.stream(), part.offset, part.bytes);
      }
      may_go = true;
      may_go.notify_one();
      context.synchronize(stream.stream());
      board().meet(context);
    } else {
      const Piece target(context, one.target, kGpuEpochs * one.bytes);
      poison_in_gpu(target.slice());
      board().meet(context);
      Receiver receiver = context.receiver(0, kTag, target.slice(), {.depth = kGpuEpochs, .stream = stream.stream()});
      std::vector<Slice> slots;
      for (std::uint64_t epoch = 1; epoch <= kGpuEpochs; ++epoch) slots.push_back(receiver.wait(stream.stream()));
      context.synchronize(stream.stream());
      for (std::uint64_t epoch = 1; epoch <= kGpuEpochs; ++epoch)
        expect_only(part_of(epoch), bytes_in_gpu(slots[epoch - 1]), kStamp);
      board().meet(context);
    }
  });
}

/// Ranks whose streams are on different GPUs.
class GpuPairs : public testing::TestWithParam<GpuCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuPairs);

/// Whose targets are of ours, over no network.
class GpuPairsHidden : public GpuPairs {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuPairsHidden);

TEST_P(GpuPairs, get_every_byte_of_every_epoch_in_order) {
  run_on_two_gpus(GetParam(), [](Context& context) {
    exchange_epochs(context, GetParam(), [](const Sender& sender) {
      // Real GPUs may or may not reach each other.
      if (!gpu_is_emulated() || GetParam().ground.network) return;
      const std::string what = sender.describe();
      EXPECT_NE(what.find("copied by the stream into the target, which is mapped"), std::string::npos) << what;
    });
  });
}

/// Rank 1 sees its own alone, and may or may not be let in to the other's.
TEST_P(GpuPairsHidden, reach_memory_of_ours_on_a_hidden_gpu) {
  run_on_two_gpus(GetParam(), "1", [](Context& context) {
    exchange_epochs(context, GetParam(), [](const Sender& sender) {
      const std::string what = sender.describe();
      const bool is_mapped = what.find("copied by the stream into the target, which is mapped") != std::string::npos;
      const bool goes_around = what.find("all goes through a bounce buffer in host memory") != std::string::npos;
      EXPECT_TRUE(is_mapped || goes_around) << what;
    });
  });
}

/// Ranks of one process, whose streams are on different GPUs.
class GpuPairsOfThreads : public testing::TestWithParam<GpuCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuPairsOfThreads);

TEST_P(GpuPairsOfThreads, get_every_byte_of_every_epoch_in_order) {
  run_on_two_gpus_of_a_process(GetParam(), [](Context& context) {
    GpuStream stream;
    EXPECT_EQ(device::driver(stream.stream().kind())->device_of(stream.stream().handle()), context.rank());
    exchange_epochs(context, GetParam(), [](const Sender& sender) {
      EXPECT_EQ(sender.describe().find("no GPU"), std::string::npos) << sender.describe();
    });
  });
}

void expect_refused_of_another_gpu(const std::optional<Error>& error) {
  ASSERT_TRUE(error);
  const std::string what = error->what();
  EXPECT_NE(what.find("the stream is of GPU 1"), std::string::npos) << what;
  EXPECT_NE(what.find("is used with streams of GPU 0"), std::string::npos) << what;
}

/// Channels that a stream was named for, that have used one, and plans. A refused call has no effect.
TEST_P(GpuPairsOfThreads, refuse_streams_of_another_gpu_than_their_first) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    if (gpus() < 2) {
      if (context.rank() == 0) skipped_here("streams of two GPUs: there is only one");
      return;
    }
    const GpuCase& one = GetParam();
    const Rank other = 1 - context.rank();
    GpuStream stream;
    GpuStream foreign(1);
    const Stream wrong = foreign.stream();
    const Piece source(context, one.source, 2 * one.bytes);
    const Piece target(context, one.target, 2 * one.bytes);
    const auto half = [&](const Piece& piece, std::size_t i) { return piece.slice().slice(i * one.bytes, one.bytes); };
    Sender sender = context.sender(other, kTag, half(source, 0), {.stream = stream.stream()});
    Receiver receiver = context.receiver(other, kTag, half(target, 0));
    Sender planned_sender = context.sender(other, kTag + 1, half(source, 1));
    Receiver planned_receiver = context.receiver(other, kTag + 1, half(target, 1));
    Plan plan = context.plan();
    plan.add(planned_sender).add(planned_receiver);
    board().meet(context);
    plan.commit(stream.stream());
    sender.wait_connected();
    expect_refused_of_another_gpu(expect_code(Code::misuse, [&] { sender.put(wrong); }));
    for (int epoch = 0; epoch < 2; ++epoch) {
      sender.put(stream.stream());
      receiver.wait(stream.stream());
      expect_refused_of_another_gpu(expect_code(Code::misuse, [&] { receiver.release(wrong); }));
      receiver.release(stream.stream());
      expect_refused_of_another_gpu(expect_code(Code::misuse, [&] { receiver.wait(wrong); }));
      for (const auto verb : {&Plan::acquire, &Plan::start, &Plan::wait, &Plan::release}) {
        expect_refused_of_another_gpu(expect_code(Code::misuse, [&] { (plan.*verb)(wrong); }));
        (plan.*verb)(stream.stream());
      }
    }
    context.synchronize(stream.stream());
    EXPECT_EQ(receiver.epoch(), 2U);
    EXPECT_EQ(planned_receiver.epoch(), 2U);
    board().meet(context);
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, GpuPairsOfThreads, testing::ValuesIn(two_gpu_cases(false)), GpuCaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, GpuPairs, testing::ValuesIn(two_gpu_cases()), GpuCaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, GpuPairsHidden,
                         testing::ValuesIn(only(two_gpu_cases(),
                                                [](const GpuCase& one) {
                                                  return one.target == Whose::ours && !one.ground.network;
                                                })),
                         GpuCaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, GpuMemory, testing::ValuesIn(gpu_cases()), GpuCaseName());
INSTANTIATE_IN_ITS_RANKS(Full, GpuMemory, full_cases(pool_cases), GpuCaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, GpuMemoryOnStreams, testing::ValuesIn(only(gpu_cases(), on_gpu_stream)), GpuCaseName());
INSTANTIATE_IN_ITS_RANKS(Full, GpuMemoryOnStreams, full_cases([] { return only(pool_cases(), on_gpu_stream); }),
                         GpuCaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, GpuMemoryInParts, testing::ValuesIn(only(gpu_cases(), in_small_slots)), GpuCaseName());
INSTANTIATE_IN_ITS_RANKS(Full, GpuMemoryInParts, full_cases([] { return only(pool_cases(), in_small_slots); }),
                         GpuCaseName());

class GpuStreams : public testing::TestWithParam<GpuCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuStreams);

/// Every neighbour's slots, in as few operations as a plan can make of them.
TEST_P(GpuStreams, take_a_plan) {
  run_peers(peers_of(GetParam(), 3), [](Context& context) {
    constexpr int kPeers = 2;
    const GpuCase& one = GetParam();
    GpuStream stream;
    std::vector<std::unique_ptr<Piece>> pieces;
    std::vector<Sender> senders;
    std::vector<Receiver> receivers;
    std::vector<Rank> others;
    for (int i = 1; i <= kPeers; ++i) others.push_back((context.rank() + i) % context.size());
    Memory seen = context.allocate(one.bytes * kPeers, Space::pinned);
    Memory filled = context.allocate(one.bytes * kGpuEpochs * kPeers, Space::pinned);
    Plan plan = context.plan();
    for (const Rank other : others) {
      pieces.push_back(std::make_unique<Piece>(context, one.source, one.bytes * 2));
      senders.push_back(context.sender(other, kTag, pieces.back()->slice(), {.depth = 2}));
      pieces.push_back(std::make_unique<Piece>(context, one.target, one.bytes * 2));
      receivers.push_back(context.receiver(other, kTag, pieces.back()->slice(), {.depth = 2}));
    }
    for (auto& sender : senders) plan.add(sender);
    for (auto& receiver : receivers) plan.add(receiver);
    board().meet(context);  // a GPU gives no memory behind a parked stream
    plan.commit(stream.stream());
    for (std::uint64_t epoch = 1; epoch <= kGpuEpochs; ++epoch) {
      plan.acquire(stream.stream());
      for (std::size_t i = 0; i < kPeers; ++i) {
        const Slice bytes = filled.slice(((epoch - 1) * kPeers + i) * one.bytes, one.bytes);
        fill(bytes_of(bytes), {context.rank(), kTag + static_cast<Tag>(others[i]), epoch});
        stream.copy(plan.slot(senders[i]).data(), bytes.data(), one.bytes);
      }
      plan.start(stream.stream());
      plan.wait(stream.stream());
      for (std::size_t i = 0; i < kPeers; ++i) {
        const Slice bytes = seen.slice(i * one.bytes, one.bytes);
        stream.copy(bytes.data(), plan.slot(receivers[i]).data(), one.bytes);
        const Stamp stamp{others[i], kTag + static_cast<Tag>(context.rank()), epoch};
        stream.run([bytes, stamp] { EXPECT_EQ(difference(bytes_of(bytes), stamp), ""); });
      }
      plan.release(stream.stream());
    }
    context.synchronize(stream.stream());
    board().meet(context);
  });
}

/// Freeing, returning and unmapping memory while a stream is parked is put off: the driver would wait for the stream,
/// and this rank with it, though it is this rank that lets the stream go on.
TEST_P(GpuStreams, that_are_parked_hold_up_no_closing) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const GpuCase& one = GetParam();
    GpuStream parked;
    GpuStream other;
    const Piece target(context, one.target, one.bytes);
    const Piece source(context, one.source, one.bytes);
    const Piece users(context, one.source, kOwnAllocation);
    Receiver receiver = context.receiver(1 - context.rank(), kTag, target.slice());
    Sender sender = context.sender(1 - context.rank(), kTag, source.slice());
    std::optional<Piece> ours;
    const bool may_wait = parked.stream().kind() == Stream::Kind::hip;  // hipMalloc
    if (may_wait) ours.emplace(context, Whose::ours, kOwnAllocation);
    board().meet(context);
    receiver.wait(parked.stream());
    board().meet(context);
    for (int i = 0; i < 3; ++i) {
      if (!may_wait) ours.emplace(context, Whose::ours, kOwnAllocation);
      Sender to = context.sender(1 - context.rank(), kTag + 1, users.slice());
      Receiver from = context.receiver(1 - context.rank(), kTag + 1, ours->slice());
      to.put(other.stream());
      from.wait(other.stream());
      from.release(other.stream());
      to.close();
      from.close();
    }
    sender.put(other.stream());
    context.synchronize(parked.stream());
    context.synchronize(other.stream());
    board().meet(context);
  });
}

/// Memory of the user's that is unmapped and mapped again at the same address: other pages each time. Shared, so that
/// the emulated driver keeps the old ones as a GPU does.
class ComingAgain {
 public:
  explicit ComingAgain(std::size_t bytes) : bytes_(bytes), data_(map(nullptr, 0)) {}
  ComingAgain(const ComingAgain&) = delete;
  ComingAgain& operator=(const ComingAgain&) = delete;
  ~ComingAgain() {
    if (here_) go();
  }

  std::byte* data() const { return data_; }
  void go() {
    ::munmap(data_, bytes_);
    here_ = false;
  }
  /// Goes and comes in one step: in between another thread could have taken the address.
  void come_again() { ASSERT_EQ(map(data_, MAP_FIXED), data_); }

 private:
  std::byte* map(void* at, int fixed) const {
    return static_cast<std::byte*>(
        ::mmap(at, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | fixed, -1, 0));
  }

  std::size_t bytes_;
  std::byte* data_;
  bool here_ = true;
};

/// A stream of this rank that waits for the other from here on, so that no driver takes pages back.
class Parked {
 public:
  explicit Parked(Context& context)
      : context_(context), memory_(context.allocate(128)),
        receiver_(context.receiver(1 - context.rank(), kTag, memory_.slice(0, 64))),
        sender_(context.sender(1 - context.rank(), kTag, memory_.slice(64, 64))) {
    receiver_.wait(stream_.stream());
    board().meet(context);
  }
  /// On a stream that is not parked.
  void let_go(Stream by) {
    sender_.put(by);
    context_.synchronize(by);
    context_.synchronize(stream_.stream());
  }

 private:
  Context& context_;
  GpuStream stream_;
  Memory memory_;
  Receiver receiver_;
  Sender sender_;
};

/// From such memory to the other rank's, whatever it is, and back into such memory.
TEST_P(GpuStreams, move_the_bytes_of_memory_that_comes_again) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const GpuCase& one = GetParam();
    const Rank other = 1 - context.rank();
    const std::size_t pages = (one.bytes + 4095) / 4096 * 4096;
    const Piece gpus(context, one.target, one.bytes);
    const Piece hosts(context, Whose::hosts, one.bytes);
    ComingAgain memory(2 * pages);
    GpuStream stream;
    Parked parked(context);
    for (std::uint64_t round = 1; round <= 3; ++round) {
      const std::span<std::byte> first(memory.data(), one.bytes);
      const std::span<std::byte> last(memory.data() + pages, one.bytes);
      const Slice from = context.region(first.data(), one.bytes).all();
      const Slice into = context.region(last.data(), one.bytes).all();
      poison(last);
      const Slice between = (round % 2 == 0 ? hosts : gpus).slice();
      Sender there = context.sender(other, kTag + 1, from);
      Receiver here = context.receiver(other, kTag + 1, between);
      Sender back = context.sender(other, kTag + 2, between);
      Receiver home = context.receiver(other, kTag + 2, into);
      for (std::uint64_t epoch = 1; epoch <= 3; ++epoch) {
        const Stamp stamp{context.rank(), kTag, 10 * round + epoch};
        stream.run([first, stamp] { fill(first, stamp); });
        there.put(stream.stream());
        here.wait(stream.stream());
        back.put(stream.stream());
        here.release(stream.stream());
        home.wait(stream.stream());
        stream.run([into, stamp] { expect_and_poison(into, stamp); });
        home.release(stream.stream());
      }
      context.synchronize(stream.stream());
      const bool stale = there.describe().find("pages that were at these addresses before") != std::string::npos;
      EXPECT_EQ(stale, round > 1) << there.describe();
      if (stale) expect_code(Code::unsupported, [&] { there.on_device(stream.stream()); });
      for (Sender* const end : {&there, &back}) end->close();
      for (Receiver* const end : {&here, &home}) end->close();
      memory.come_again();
    }
    parked.let_go(stream.stream());
    board().meet(context);
  });
}

/// The host's copies, in program order and on a host stream, which the driver would do at once: from memory that a
/// GPU's stream has used before, to the other rank's GPU, and back.
TEST_P(GpuStreams, leave_memory_that_comes_again_to_the_host) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const GpuCase& one = GetParam();
    const Rank other = 1 - context.rank();
    const std::size_t pages = (one.bytes + 4095) / 4096 * 4096;
    const Piece gpus(context, one.target, one.bytes);
    ComingAgain memory(2 * pages);
    GpuStream stream;
    HostStream host;
    Parked parked(context);
    const auto exchange = [&](Stream order, const auto& run, std::uint64_t round) {
      const std::span<std::byte> first(memory.data(), one.bytes);
      const Slice from = context.region(first.data(), one.bytes).all();
      const Slice into = context.region(memory.data() + pages, one.bytes).all();
      poison(bytes_of(into));
      Sender there = context.sender(other, kTag + 1, from);
      Receiver here = context.receiver(other, kTag + 1, gpus.slice());
      Sender back = context.sender(other, kTag + 2, gpus.slice());
      Receiver home = context.receiver(other, kTag + 2, into);
      for (std::uint64_t epoch = 1; epoch <= 3; ++epoch) {
        const Stamp stamp{context.rank(), kTag, 10 * round + epoch};
        there.acquire(order);
        run([first, stamp] { fill(first, stamp); });
        there.put(order);
        here.wait(order);
        back.put(order);
        home.wait(order);
        run([into, stamp] { expect_and_poison(into, stamp); });
        home.release(order);
        here.release(order);
      }
      context.synchronize(order);
      for (Sender* const end : {&there, &back}) end->close();
      for (Receiver* const end : {&here, &home}) end->close();
      memory.come_again();
    };
    exchange(
        stream.stream(), [&](const auto& work) { stream.run(work); }, 1);
    exchange(
        {}, [](const auto& work) { work(); }, 2);
    exchange(
        Stream::host(host), [&](const auto& work) { host.run(work); }, 3);
    parked.let_go(stream.stream());
    board().meet(context);
  });
}

/// Memory of ours is never at addresses where the driver still has the user's pages: neither memory that is allocated
/// later nor the words of channels.
TEST_P(GpuStreams, find_memory_of_ours_elsewhere_than_where_the_users_was) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    constexpr std::size_t kBytes = 1024 * 1024;
    constexpr std::size_t kPages = 64 * 1024;  // of the heap
    constexpr Tag kChannels = 60;
    const Rank other = 1 - context.rank();
    GpuStream stream;
    ComingAgain memory(kBytes);
    auto* const heap = static_cast<std::byte*>(std::aligned_alloc(4096, kPages));
    const Memory ours = context.allocate(kBytes);
    const auto use = [&](const Slice& bytes, Tag tag) {
      const std::size_t half = bytes.bytes() / 2;
      const Slice source = bytes.slice(0, half);
      const Slice target = bytes.slice(half, half);
      Sender sender = context.sender(other, tag, source);
      Receiver receiver = context.receiver(other, tag, target);
      fill(bytes_of(source), {context.rank(), tag, 1});
      sender.put(stream.stream());
      receiver.wait(stream.stream());
      receiver.release(stream.stream());
      context.synchronize(stream.stream());
      expect_and_poison(target, {other, tag, 1});
      sender.close();
      receiver.close();
    };
    Parked parked(context);
    use(context.region(memory.data(), kBytes).all(), kTag + 1);
    use(context.region(heap, kPages).all(), kTag + 2);
    memory.go();
    std::free(heap);
    use(context.allocate(kBytes, Space::pinned).all(), kTag + 3);
    std::vector<Sender> senders;
    std::vector<Receiver> receivers;
    for (Tag i = 0; i < kChannels; ++i) {
      const Slice bytes = ours.slice(i * 128, 128);
      senders.push_back(context.sender(other, kTag + 4 + i, bytes.slice(0, 64)));
      receivers.push_back(context.receiver(other, kTag + 4 + i, bytes.slice(64, 64)));
      senders.back().put(stream.stream());
      receivers.back().wait(stream.stream());
    }
    context.synchronize(stream.stream());
    parked.let_go(stream.stream());
    board().meet(context);
  });
}

TEST_P(GpuStreams, that_wait_are_released_by_an_abort_and_the_gpu_stays_usable) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const GpuCase& one = GetParam();
    GpuStream stream;
    const Piece target(context, one.target, one.bytes);
    Receiver receiver = context.receiver(1 - context.rank(), kTag, target.slice());
    const Piece source(context, one.source, one.bytes);
    const Sender sender = context.sender(1 - context.rank(), kTag, source.slice());
    board().meet(context);
    receiver.wait(stream.stream());
    board().meet(context);
    if (context.rank() == 0) context.abort("enough");
    expect_released([&] { expect_code(Code::aborted, [&] { context.synchronize(stream.stream()); }); });
    std::vector<std::byte> bytes(one.bytes);
    std::vector<std::byte> back(one.bytes);
    fill(bytes, {context.rank(), kTag, 9});
    gpu_copy(target.slice().data(), bytes.data(), one.bytes);
    gpu_copy(back.data(), target.slice().data(), one.bytes);
    EXPECT_EQ(difference(back, {context.rank(), kTag, 9}), "");
    board().meet(context);
  });
}

TEST_P(GpuStreams, that_wait_too_long_are_released) {
  static constexpr auto kTimeout = 100ms;
  Peers peers = peers_of(GetParam());
  peers.timeout = kTimeout;
  run_peers(with_untold(peers), [](Context& context) {
    const GpuCase& one = GetParam();
    if (context.rank() == 1) {
      const Piece source(context, one.source, one.bytes);
      const Sender sender = context.sender(0, kTag, source.slice());
      board().meet(context);
      board().meet(context);
      return;
    }
    GpuStream stream;
    const Piece target(context, one.target, one.bytes);
    Receiver receiver = context.receiver(1, kTag, target.slice());
    board().meet(context);
    receiver.wait(stream.stream());
    expect_released([&] { expect_code(Code::timeout, [&] { context.synchronize(stream.stream()); }); }, kTimeout);
    expect_code(Code::timeout, [&] { receiver.wait(stream.stream()); });
    board().meet(context);
  });
}

TEST_P(GpuStreams, of_another_kind_or_gpu_are_misuse) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const GpuCase& one = GetParam();
    GpuStream stream;
    HostStream host;
    const Piece source(context, one.source, one.bytes);
    const Piece target(context, one.target, one.bytes);
    Sender sender = context.sender(1 - context.rank(), kTag, source.slice());
    const Receiver receiver = context.receiver(1 - context.rank(), kTag, target.slice());
    board().meet(context);
    sender.put(stream.stream());
    expect_code(Code::misuse, [&] { sender.put({}); });
    expect_code(Code::misuse, [&] { sender.put(Stream::host(host)); });
    const bool is_hip = stream.stream().kind() == Stream::Kind::hip;
    expect_code(Code::misuse, [&] { sender.put(is_hip ? Stream::cuda(nullptr) : Stream::hip(nullptr)); });
    context.synchronize(stream.stream());
    board().meet(context);
  });
}

/// cudaStreamPerThread: one handle, and a stream for each thread that uses it.
TEST_P(GpuStreams, may_be_each_thread_s_own) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const GpuCase& one = GetParam();
    GpuStream stream(StreamManner::per_thread);
    if (stream.stream().kind() == Stream::Kind::hip) return skipped_here("streams of threads, with HIP");
    const Rank other = 1 - context.rank();
    const Memory bytes = context.allocate((kGpuEpochs + 1) * one.bytes, Space::pinned);
    const Piece source(context, one.source, one.bytes);
    const Piece target(context, one.target, one.bytes);
    Sender sender = context.sender(other, kTag, source.slice());
    Receiver receiver = context.receiver(other, kTag, target.slice());
    board().meet(context);
    const auto exchange = [&](std::uint64_t first, std::uint64_t last) {
      for (std::uint64_t epoch = first; epoch <= last; ++epoch) {
        const Slice own = bytes.slice(epoch * one.bytes, one.bytes);
        fill(bytes_of(own), {context.rank(), kTag, epoch});
        stream.copy(sender.acquire(stream.stream()).data(), own.data(), one.bytes);
        sender.put(stream.stream());
        stream.copy(own.data(), receiver.wait(stream.stream()).data(), one.bytes);
        receiver.release(stream.stream());
      }
      context.synchronize(stream.stream());
      for (std::uint64_t epoch = first; epoch <= last; ++epoch)
        EXPECT_EQ(difference(bytes_of(bytes.slice(epoch * one.bytes, one.bytes)), {other, kTag, epoch}), "");
    };
    exchange(1, kGpuEpochs / 2);
    std::thread([&] {
      gpu_copy(bytes.data(), source.slice().data(), one.bytes);  // this thread uses the GPU too
      exchange(kGpuEpochs / 2 + 1, kGpuEpochs);
    }).join();
    board().meet(context);
  });
}

/// The driver makes no stream for us: that is an error, and nothing is done on a stream of the program's.
TEST_P(GpuStreams, of_ours_that_cannot_be_made_are_an_error) {
  if (!gpu_is_emulated()) return skipped_here("this driver makes all streams");
  Peers peers = peers_of(GetParam());
  peers.environment = {"EMUCUDA_STREAMS_OF_PRIORITY=0"};
  run_peers(peers, [](Context& context) {
    const GpuStream of_the_program;
    const auto error = expect_code(Code::out_of_resources, [&] { context.allocate(64, Space::device); });
    ASSERT_TRUE(error);
    EXPECT_NE(std::string(error->what()).find("StreamCreateWithPriority"), std::string::npos) << error->what();
  });
}

/// Memory of the host that the program has pinned, and two regions that share a page.
TEST_P(GpuStreams, use_memory_that_is_pinned_already_and_regions_that_share_a_page) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    constexpr std::size_t kBytes = 5000;
    GpuStream stream;
    const PinnedBuffer pinned(kBytes);
    const Memory both = context.allocate(4 * kBytes);  // for its addresses: pages of this rank alone
    std::byte* const begin = both.data() + 123;
    const Rank other = 1 - context.rank();
    Sender from_pinned = context.sender(other, kTag, context.region(pinned.data(), kBytes).all());
    Receiver first = context.receiver(other, kTag, context.region(begin, kBytes).all());
    Sender from_first = context.sender(other, kTag + 1, context.region(begin, kBytes).all());
    Receiver second = context.receiver(other, kTag + 1, context.region(begin + kBytes, kBytes).all());
    board().meet(context);
    fill({pinned.data(), kBytes}, {context.rank(), kTag, 1});
    from_pinned.put(stream.stream());
    first.wait(stream.stream());
    from_first.put(stream.stream());
    second.wait(stream.stream());
    context.synchronize(stream.stream());
    EXPECT_EQ(difference({begin, kBytes}, {other, kTag, 1}), "");
    EXPECT_EQ(difference({begin + kBytes, kBytes}, {context.rank(), kTag, 1}), "");
    board().meet(context);
  });
}

/// A thread that has used no GPU gives back what others have.
TEST_P(GpuStreams, need_no_context_in_the_thread_that_frees) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    std::thread([&] {
      for (int i = 0; i < 5; ++i) {
        context.allocate(1024 * 1024, Space::pinned);
        context.allocate(1024 * 1024, Space::device);
      }
    }).join();
  });
}

TEST_P(GpuStreams, need_no_context_in_the_thread_that_gives_them_work) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const GpuCase& one = GetParam();
    const GpuStream stream;
    const Piece source(context, one.source, one.bytes);
    const Piece target(context, one.target, one.bytes);
    Sender sender = context.sender(1 - context.rank(), kTag, source.slice());
    Receiver receiver = context.receiver(1 - context.rank(), kTag, target.slice());
    std::thread([&] {
      sender.put(stream.stream());
      receiver.wait(stream.stream());
      receiver.release(stream.stream());
      context.synchronize(stream.stream());
    }).join();
    EXPECT_EQ(receiver.epoch(), 1U);
    board().meet(context);
  });
}

/// No event wakes a host that waits for a word of a GPU: it must poll.
TEST_P(GpuStreams, are_noticed_by_hosts) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    const GpuCase& one = GetParam();
    const Piece source(context, one.source, one.bytes);
    const Piece target(context, one.target, one.bytes);
    if (context.rank() == 0) {
      GpuStream stream;
      Sender sender = context.sender(1, kTag, source.slice());
      for (std::uint64_t epoch = 1; epoch <= 3; ++epoch) {
        board().await(0, epoch);
        std::this_thread::sleep_for(20ms);  // the other has gone to sleep
        sender.put(stream.stream());
      }
      sender.drain();
    } else {
      Receiver receiver = context.receiver(0, kTag, target.slice());
      Clock::duration shortest = 60s;
      for (std::uint64_t epoch = 1; epoch <= 3; ++epoch) {
        board().set(0, epoch);
        const auto began = Clock::now();
        EXPECT_TRUE(receiver.wait_for(60s).has_value());
        shortest = std::min<Clock::duration>(shortest, Clock::now() - began);
        receiver.release({});
      }
      EXPECT_LT(shortest, 500ms);  // without a wake a sleeper looks once a second
    }
    board().meet(context);
  });
}

std::vector<GpuCase> stream_cases_of(std::vector<GpuCase> cases) {
  std::erase_if(cases, [](const GpuCase& one) {
    return one.inline_order || one.depth != 1 || one.source == Whose::hosts || one.target == Whose::hosts;
  });
  return cases;
}

INSTANTIATE_IN_ITS_RANKS(Quick, GpuStreams, testing::ValuesIn(stream_cases_of(gpu_cases())), GpuCaseName());
INSTANTIATE_IN_ITS_RANKS(Full, GpuStreams, full_cases([] { return stream_cases_of(pool_cases()); }), GpuCaseName());

class GpuPages : public testing::TestWithParam<GpuCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuPages);

/// The library finds out on a stream of its own whether the GPU can ring a NIC's page; a parked stream of the program
/// holds that up here.
TEST_P(GpuPages, that_are_tried_out_hold_up_nobody) {
  Peers peers = peers_of(GetParam());
  peers.environment = {"CUDA_DEVICE_MAX_CONNECTIONS=1", "EMUCUDA_PRIORITIES=0"};
  run_peers(peers, [](Context& context) {
    const GpuCase& one = GetParam();
    const Rank other = 1 - context.rank();
    const Piece source(context, one.source, one.bytes);
    const Piece target(context, one.target, one.bytes);
    const PinnedBuffer word(sizeof(std::uint64_t));
    GpuStream parked;
    GpuStream stream;
    Sender sender = context.sender(other, kTag, source.slice());
    Receiver receiver = context.receiver(other, kTag, target.slice());
    sender.wait_connected();
    const device::WordOp wait{device::WordOp::Kind::wait, word.data(), 1};
    device::driver(stream.stream().kind())->operate(parked.stream().handle(), {&wait, 1});
    std::atomic<bool> put{false};
    std::thread others([&] {
      expect_for(50ms, [&] { return !put; });  // it is being tried out
      const Memory halves = context.allocate(2 * sizeof(std::uint64_t));
      Sender mine = context.sender(other, kTag + 1, halves.slice(0, sizeof(std::uint64_t)));
      Receiver theirs = context.receiver(other, kTag + 1, halves.slice(sizeof(std::uint64_t), sizeof(std::uint64_t)));
      mine.put({});
      EXPECT_TRUE(theirs.wait_for(5s));
      EXPECT_FALSE(put);
      board().meet(context);
      std::atomic_ref(*reinterpret_cast<std::uint64_t*>(word.data())).store(1);
    });
    sender.put(stream.stream());
    put = true;
    others.join();
    receiver.wait(stream.stream());
    context.synchronize(stream.stream());
    board().meet(context);
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, GpuPages, testing::ValuesIn([] {
                           std::vector<GpuCase> cases = gpu_cases();
                           std::erase_if(cases, [](const GpuCase& one) {
                             return one.ground.name != "emucxi" || one.depth != 1 || one.source != Whose::hosts ||
                                    one.target != Whose::hosts;
                           });
                           return cases;
                         }()),
                         GpuCaseName());

}  // namespace
