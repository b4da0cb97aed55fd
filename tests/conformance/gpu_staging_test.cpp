// SPDX-License-Identifier: Apache-2.0
// A GPU's memory that no NIC reads: a stream of ours copies what is sent, and may be held up by what the program's
// streams wait for. Here all streams of a GPU share one hardware queue.
#include <sluice/sluice.hpp>

#include <atomic>
#include <vector>

#include "device/driver.hpp"
#include "tests/conformance/gpu_cases.hpp"
#include "tests/conformance/released.hpp"
#include "tests/faults/killed.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

/// Streams, and a word that holds up all of them.
class HeldStreams {
 public:
  Stream stream() const { return stream_.stream(); }
  /// Names the stream at opening, so that memory is mapped before the stream is parked.
  ChannelOptions options(const GpuCase& one) const {
    return one.inline_order ? ChannelOptions{} : ChannelOptions{.stream = stream()};
  }
  /// Later work of any stream waits until the word is `value`.
  void behind(std::uint64_t value) {
    const device::WordOp wait{device::WordOp::Kind::wait, word_.data(), value};
    device::driver(parked_.stream().kind())->operate(parked_.stream().handle(), {&wait, 1});
  }
  void mark() {
    stream_.run([this] { marked_ = true; });
  }
  void await_mark() const {
    expect_within(10s, [&] { return marked_.load(); });
  }
  void raise(std::uint64_t value) const {
    std::atomic_ref(*reinterpret_cast<std::uint64_t*>(word_.data())).store(value);
  }

 private:
  const PinnedBuffer word_ = PinnedBuffer(sizeof(std::uint64_t));
  std::atomic<bool> marked_{false};
  GpuStream parked_;
  GpuStream stream_;
};

class GpuStaging : public testing::TestWithParam<GpuCase> {
 protected:
  static Peers peers() {
    Peers peers = peers_of(GetParam());
    peers.environment = {"CUDA_DEVICE_MAX_CONNECTIONS=1", "EMUCUDA_PRIORITIES=0"};
    peers.timeout = 2s;
    return peers;
  }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuStaging);

/// Rank 0 puts behind a wait of its own for what never comes. Other channels go on, and the timeout of that wait lets
/// the copy through.
TEST_P(GpuStaging, that_is_held_up_holds_up_nobody) {
  run_peers(with_untold(peers()), [](Context& context) {
    const GpuCase& one = GetParam();
    const Stream order = Stream::program_order();
    const Memory here = context.allocate(one.bytes);
    const Memory beside = context.allocate(2 * one.bytes);
    const Slice other = beside.slice(0, one.bytes);
    if (context.rank() == 0) {
      HeldStreams streams;
      const Piece piece(context, one.source, one.bytes);
      Sender sender = context.sender(1, kTag, piece.slice(), streams.options(one));
      Receiver never = context.receiver(1, kTag + 1, beside.slice(one.bytes, one.bytes), {.stream = streams.stream()});
      Sender mine = context.sender(1, kTag + 2, other);
      fill(bytes_of(here.all()), {0, kTag, 1});
      gpu_copy(piece.slice().data(), here.all().data(), one.bytes);
      sender.wait_connected();
      never.wait_connected();
      mine.wait_connected();
      streams.behind(1);
      if (!one.inline_order) sender.put(streams.stream());
      never.wait(streams.stream());
      streams.behind(2);
      streams.raise(1);
      if (one.inline_order) sender.put(order);
      fill(bytes_of(mine.acquire(order)), {0, kTag + 2, 1});
      mine.put(order);
      mine.drain(10s);
      expect_code(Code::timeout, [&] { context.synchronize(streams.stream()); });
      board().meet(context);
      streams.raise(2);
      sender.close();
      board().meet(context);
    } else {
      Receiver receiver = context.receiver(0, kTag, here.all());
      Sender never = context.sender(0, kTag + 1, beside.slice(one.bytes, one.bytes));
      Receiver theirs = context.receiver(0, kTag + 2, other);
      EXPECT_TRUE(theirs.wait_for(10s).has_value());
      EXPECT_EQ(difference(bytes_of(other), {0, kTag + 2, 1}), "");
      board().meet(context);
      EXPECT_TRUE(receiver.wait_for(10s).has_value());
      EXPECT_EQ(difference(bytes_of(here.all()), {0, kTag, 1}), "");
      receiver.release(order);
      board().meet(context);
    }
  });
}

/// True if the driver can hold up copies on request; else reports that a test is left out.
bool may_hold_up_copies(const Context& context) {
  if (!gpu_is_emulated() && context.rank() == 0)
    skipped_here("copies that are held up: no driver but the emulated one is told to");
  return gpu_is_emulated();
}

/// The channel fails meanwhile: the copy still reads the source.
TEST_P(GpuStaging, is_not_let_go_of_before_it_was_read) {
  run_peers(peers(), [](Context& context) {
    if (!may_hold_up_copies(context)) return;
    const GpuCase& one = GetParam();
    const Memory here = context.allocate(one.bytes);
    const Memory beside = context.allocate(64);
    if (context.rank() == 0) {
      HeldStreams streams;
      const Piece piece(context, one.source, one.bytes);
      Sender sender = context.sender(1, kTag, piece.slice(), streams.options(one));
      Sender mine = context.sender(1, kTag + 1, beside.all());
      sender.wait_connected();
      streams.behind(1);
      if (!one.inline_order) {
        sender.put(streams.stream());
        streams.mark();
      }
      streams.behind(2);
      streams.raise(1);
      if (one.inline_order) {
        sender.put(Stream::program_order());
      } else {
        streams.await_mark();
      }
      mine.put(
          Stream::program_order());  // it is rung for, and a turn of the engine has begun to copy once this has left
      mine.drain(10s);
      context.abort("enough");
      expect_code(Code::timeout, [&] { sender.close(100ms); });
      streams.raise(2);
      sender.close(10s);
      board().meet(context);
    } else {
      Receiver receiver = context.receiver(0, kTag, here.all());
      Receiver theirs = context.receiver(0, kTag + 1, beside.all());
      expect_code(Code::aborted, [&] { receiver.wait_for(10s); });
      board().meet(context);
    }
  });
}

/// A context that keeps an error does nothing more: no word of what was given tells of its end.
TEST_P(GpuStaging, of_a_gpu_that_has_failed_is_closed_soon) {
  Peers peers = GpuStaging::peers();
  peers.timeout = 60s;
  run_peers(peers, [](Context& context) {
    if (!may_hold_up_copies(context)) return;
    const GpuCase& one = GetParam();
    const Memory here = context.allocate(one.bytes);
    const Memory beside = context.allocate(64);
    if (context.rank() == 0) {
      HeldStreams streams;
      const Piece piece(context, one.source, one.bytes);
      Sender sender = context.sender(1, kTag, piece.slice(), streams.options(one));
      Sender mine = context.sender(1, kTag + 1, beside.all());
      sender.wait_connected();
      mine.wait_connected();
      streams.behind(1);
      if (one.inline_order) {
        sender.put(Stream::program_order());
      } else {
        sender.put(streams.stream());
      }
      mine.put(Stream::program_order());  // once it has left, a turn of the engine has begun to copy
      mine.drain(10s);
      fail_gpu_for_good();
      sender.close(10s);
      expect_code(Code::transport, [&] { context.check(); });
      board().meet(context);
    } else {
      Receiver receiver = context.receiver(0, kTag, here.all());
      Receiver theirs = context.receiver(0, kTag + 1, beside.all());
      expect_code(Code::transport, [&] { receiver.wait_for(20s); });
      board().meet(context);
    }
  });
}

/// The slot of an acquire is read by a copy that is behind that very wait.
class GpuAcquire : public GpuStaging {
 protected:
  /// Rank 0: a stream waits in an acquire, with the copy behind it; `release(stream)` ends that.
  template <class F>
  static void hold(Context& context, F release) {
    const GpuCase& one = GetParam();
    const Memory beside = context.allocate(64);
    HeldStreams streams;
    const Piece piece(context, one.source, one.bytes);
    Sender sender = context.sender(1, kTag, piece.slice(), streams.options(one));
    Sender mine = context.sender(1, kTag + 1, beside.all());
    sender.wait_connected();
    mine.wait_connected();
    streams.behind(1);
    sender.put(streams.stream());
    streams.mark();
    sender.acquire(streams.stream());
    streams.raise(1);
    streams.await_mark();
    mine.put(Stream::program_order());  // once it has left, a turn of the engine has begun to copy
    mine.drain(10s);
    release(streams.stream());
    sender.close(10s);
  }

  /// `end(context)` ends the wait, in rank 0; its stream says `code` then.
  template <class F>
  static void release(const Peers& peers, Code code, F end) {
    run_peers(with_untold(peers), [code, end](Context& context) {
      if (!may_hold_up_copies(context)) return;
      if (context.rank() == 0) {
        hold(context, [&](Stream stream) {
          end(context);
          expect_released([&] { expect_code(code, [&] { context.synchronize(stream); }); });
        });
        board().meet(context);
      } else {
        const Memory here = context.allocate(GetParam().bytes);
        const Memory beside = context.allocate(64);
        Receiver receiver = context.receiver(0, kTag, here.all());
        Receiver theirs = context.receiver(0, kTag + 1, beside.all());
        board().meet(context);
      }
    });
  }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuAcquire);

TEST_P(GpuAcquire, behind_which_its_copy_is_is_released_by_a_timeout) {
  release(peers(), Code::timeout, [](Context&) {});
}

TEST_P(GpuAcquire, behind_which_its_copy_is_is_released_by_an_abort) {
  Peers patient = peers();
  patient.timeout = 60s;
  release(patient, Code::aborted, [](Context& context) { context.abort("enough"); });
}

/// On grounds whose ranks may be killed.
class GpuAcquireKill : public GpuAcquire {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuAcquireKill);

TEST_P(GpuAcquireKill, behind_which_its_copy_is_is_released_by_the_death_of_its_peer) {
  Peers patient = peers();
  patient.timeout = 60s;
  patient.keep_going = true;
  const Ended ended = end_of_peers(patient, [](Context& context) {
    if (context.rank() == 0) {
      if (!may_hold_up_copies(context)) return board().set(kReady, 1);
      hold(context, [&](Stream stream) {
        board().set(kReady, 1);
        expect_loss_of_rank_1(
            context, [&] { context.synchronize(stream); }, stream);
      });
    } else {
      const Memory here = context.allocate(GetParam().bytes);
      const Memory beside = context.allocate(64);
      Receiver receiver = context.receiver(0, kTag, here.all());
      Receiver theirs = context.receiver(0, kTag + 1, beside.all());
      die_when_ready();
    }
  });
  expect_only_rank_1_killed(ended);
}

std::vector<GpuCase> acquire_cases() {
  std::vector<GpuCase> cases;
  for (const Ground& ground : gpu_grounds())
    if (ground.network && ground.processes) cases.push_back({ground, false, Whose::ours, Whose::hosts, 1, 13});
  return cases;
}

INSTANTIATE_IN_ITS_RANKS(Quick, GpuAcquire, testing::ValuesIn(acquire_cases()), GpuCaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, GpuAcquireKill,
                         testing::ValuesIn(only(acquire_cases(),
                                                [](const GpuCase& one) { return why_not_kill(one.ground).empty(); })),
                         GpuCaseName());

std::vector<GpuCase> staging_cases() {
  std::vector<GpuCase> cases;
  for (const Ground& ground : gpu_grounds()) {
    if (!ground.network || !ground.processes) continue;
    for (const bool inline_order : {false, true}) {
      cases.push_back({ground, inline_order, Whose::ours, Whose::hosts, 1, 13});
      cases.push_back({ground, inline_order, Whose::users, Whose::hosts, 1, 2'000'000});  // several pieces
    }
  }
  return cases;
}

INSTANTIATE_IN_ITS_RANKS(Quick, GpuStaging, testing::ValuesIn(staging_cases()), GpuCaseName());

}  // namespace
