// SPDX-License-Identifier: Apache-2.0
// A verb gives a GPU's stream few operations: a kernel for small puts, the copy engine for others. And the state of
// channels after the driver refuses an operation, which an emulated driver does on request.
#include <algorithm>
#include <functional>
#include <initializer_list>
#include <numeric>
#include <string_view>
#include <thread>

#include "tests/conformance/gpu_cases.hpp"
#include "tests/faults/wrapped.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr std::uint64_t kPlanEpochs = 6;
constexpr std::size_t kLarge = 100'000;
constexpr const char* kByKernel = "by a kernel";

std::vector<GpuCase> plan_cases() {
  std::vector<GpuCase> cases;
  for (const Ground& ground : gpu_grounds()) {
    cases.push_back({ground, false, Whose::ours, Whose::ours, 1, kLarge});
    cases.push_back({ground, false, Whose::hosts, Whose::ours, 1, 13});
    cases.push_back({ground, false, Whose::users, Whose::users, 1, 13});
  }
  return cases;
}

std::vector<GpuCase> plan_cases_on(std::initializer_list<std::string_view> grounds) {
  std::vector<GpuCase> cases = plan_cases();
  std::erase_if(cases,
                [&](const GpuCase& one) { return std::ranges::find(grounds, one.ground.name) == grounds.end(); });
  return cases;
}

/// Channels to the other rank and back, in a plan, with slots of these sizes, one behind the other in memory.
class Assorted {
 public:
  Assorted(Context& context, const GpuCase& one, GpuStream& gpu_stream, std::vector<std::size_t> sizes)
      : rank_(context.rank()), sizes_(std::move(sizes)),
        filled_(context.allocate(total() * kPlanEpochs, Space::pinned)),
        seen_(context.allocate(total(), Space::pinned)), source_(context, one.source, total()),
        target_(context, one.target, total()), stream(gpu_stream), plan(context.plan()) {
    for_each_slot([&](std::size_t i, std::size_t at) {
      const Tag tag = kTag + static_cast<Tag>(i);
      senders.push_back(context.sender(1 - rank_, tag, source_.slice().slice(at, sizes_[i])));
      receivers.push_back(context.receiver(1 - rank_, tag, target_.slice().slice(at, sizes_[i])));
    });
    for (Sender& sender : senders) plan.add(sender);
    for (Receiver& receiver : receivers) plan.add(receiver);
    board().meet(context);  // a GPU gives no memory behind a parked stream
    plan.commit(stream.stream());
    board().meet(context);  // so that no rank that has still to commit sees the failure of another
  }

  void fill(std::uint64_t epoch) {
    for_each_slot([&](std::size_t i, std::size_t at) {
      const Slice bytes = filled_.slice((epoch - 1) * total() + at, sizes_[i]);
      test::fill(bytes_of(bytes), {rank_, static_cast<Tag>(i), epoch});
      stream.copy(plan.slot(senders[i]).data(), bytes.data(), bytes.bytes());
    });
  }
  void expect(std::uint64_t epoch) {
    for_each_slot([&](std::size_t i, std::size_t at) {
      const Slice bytes = seen_.slice(at, sizes_[i]);
      stream.copy(bytes.data(), plan.slot(receivers[i]).data(), bytes.bytes());
      const Stamp stamp{1 - rank_, static_cast<Tag>(i), epoch};
      stream.run([bytes, stamp] { EXPECT_EQ(difference(bytes_of(bytes), stamp), ""); });
    });
  }

 private:
  std::size_t total() const { return std::accumulate(sizes_.begin(), sizes_.end(), std::size_t{0}); }
  template <class F>
  void for_each_slot(F work) const {
    std::size_t at = 0;
    for (std::size_t i = 0; i < sizes_.size(); at += sizes_[i++]) work(i, at);
  }

  Rank rank_;
  std::vector<std::size_t> sizes_;
  Memory filled_;
  Memory seen_;
  Piece source_;
  Piece target_;

 public:
  GpuStream& stream;
  std::vector<Sender> senders;
  std::vector<Receiver> receivers;
  Plan plan;
};

Peers peers_with_kernels(const GpuCase& one) {
  Peers peers = peers_of(one);
  peers.environment = {"SLUICE_KERNEL_PUT_MAX=4k"};
  return peers;
}

class GpuPlans : public testing::TestWithParam<GpuCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuPlans);

/// Whose puts the stream itself does.
class GpuPlansOfStreams : public GpuPlans {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuPlansOfStreams);

/// GpuPlans on grounds that programs have.
class GpuPlansInReach : public GpuPlans {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuPlansInReach);

/// Ranks of one process.
class GpuPlansOfThreads : public GpuPlans {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuPlansOfThreads);

/// Over no network.
class GpuPlansNear : public GpuPlans {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuPlansNear);

/// Whose puts are rung for.
class GpuPlansRung : public GpuPlans {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuPlansRung);

/// More small puts than one launch takes, among large ones.
TEST_P(GpuPlans, move_small_and_large_puts) {
  run_peers(peers_with_kernels(GetParam()), [](Context& context) {
    std::vector<std::size_t> sizes(38);
    std::iota(sizes.begin(), sizes.end(), 1);
    sizes[0] = sizes[20] = kLarge;
    sizes[30] = 4096;
    GpuStream stream;
    Assorted all(context, GetParam(), stream, sizes);
    for (std::uint64_t epoch = 1; epoch <= kPlanEpochs; ++epoch) {
      all.plan.acquire(all.stream.stream());
      all.fill(epoch);
      all.plan.start(all.stream.stream());
      all.plan.wait(all.stream.stream());
      all.expect(epoch);
      all.plan.release(all.stream.stream());
    }
    context.synchronize(all.stream.stream());
    board().meet(context);
  });
}

TEST_P(GpuPlans, say_how_many_words_go_into_one_operation) {
  run_peers(peers_of(GetParam()), [](Context& context) {
    GpuStream stream;
    const Assorted all(context, GetParam(), stream, std::vector<std::size_t>(66, 8));
    const std::string what = all.plan.describe();
    EXPECT_NE(what.find("each 64 of its words are queued as one "), std::string::npos) << what;
    EXPECT_NE(what.find("as are those of a wait for all 66"), std::string::npos) << what;
    board().meet(context);
  });
}

TEST_P(GpuPlansOfStreams, start_small_puts_in_two_operations) {
  run_peers(peers_with_kernels(GetParam()), [](Context& context) {
    GpuStream stream;
    Assorted all(context, GetParam(), stream, std::vector<std::size_t>(30, 13));
    for (int step = 0; step < 3; ++step) {
      {
        std::optional<Refusals> of_more;
        // Waits for credits, in a batch, which HIP has not; and a kernel.
        if (Refusals::possible() && stream.stream().kind() == Stream::Kind::cuda) of_more.emplace(2, 1000);
        all.plan.start(all.stream.stream());
      }
      all.plan.wait(all.stream.stream());
      all.plan.release(all.stream.stream());
    }
    context.synchronize(all.stream.stream());
    board().meet(context);
  });
}

/// A verb, of which the driver takes so many operations and refuses so many after them.
struct Refusal {
  std::size_t verb;
  unsigned taken;
  unsigned refused;
};

/// With all verbs, refused at their first, second and third operation, and without an end.
template <class F>
void for_each_refusal(F work) {
  for (std::size_t verb = 0; verb < 3; ++verb) {
    for (unsigned taken = 0; taken < 3; ++taken) {
      for (const unsigned refused : {1U, 1000U}) work(Refusal{verb, taken, refused});
    }
  }
}

/// Calls the verbs in turn, up to one that fails, as one of rank 0 does if it has so many operations. Some say so only
/// when they are waited for.
void call_verbs(Context& context, Stream stream, const std::vector<std::function<void()>>& verbs, const Refusal& what) {
  bool failed = false;
  for (std::size_t i = 0; i < verbs.size() && !failed; ++i) {
    std::optional<Refusals> refusals;
    if (context.rank() == 0 && i == what.verb) refusals.emplace(what.taken, what.refused);
    failed = has_failed(verbs[i]);
  }
  failed |= has_failed([&] { context.synchronize(stream); });
  EXPECT_TRUE(failed || what.taken != 0 || context.rank() != 0);
}

template <class Ends>
void close_all(Ends& ends) {
  for (auto& end : ends) end.close(5s);
}

TEST_P(GpuPlansNear, that_are_refused_an_operation_leave_channels_that_close) {
  if (!may_refuse_operations()) return;
  run_peers(with_untold(peers_with_kernels(GetParam())), [](Context& context) {
    GpuStream one_stream;  // hardware has few queues for streams: the engine's own copies must not share one that waits
    const Stream stream = one_stream.stream();
    for_each_refusal([&](const Refusal& what) {
      Assorted all(context, GetParam(), one_stream, {13, kLarge, kLarge, 64});
      call_verbs(context, stream,
                 {[&] { all.plan.start(stream); }, [&] { all.plan.wait(stream); }, [&] { all.plan.release(stream); }},
                 what);
      close_all(all.senders);
      close_all(all.receivers);
      board().meet(context);
    });
  });
}

TEST_P(GpuPlansNear, or_verbs_that_are_refused_an_operation_leave_channels_that_close) {
  if (!may_refuse_operations()) return;
  run_peers(peers_with_kernels(GetParam()), [](Context& context) {
    const GpuCase& one = GetParam();
    const Piece source(context, one.source, one.bytes);
    const Piece target(context, one.target, one.bytes);
    GpuStream stream;
    for_each_refusal([&](const Refusal& what) {
      Sender sender = context.sender(1 - context.rank(), kTag, source.slice());
      Receiver receiver = context.receiver(1 - context.rank(), kTag, target.slice());
      sender.wait_connected();
      receiver.wait_connected();
      board().meet(context);
      call_verbs(context, stream.stream(),
                 {[&] { sender.put(stream.stream()); }, [&] { receiver.wait(stream.stream()); },
                  [&] { receiver.release(stream.stream()); }},
                 what);
      sender.close(5s);
      receiver.close(5s);
      board().meet(context);
    });
  });
}

/// With more bells, or signals, than one batch writes, of which the driver refuses the second.
TEST_P(GpuPlansNear, that_are_refused_a_part_close_when_the_stream_has_passed_the_rest) {
  if (!may_refuse_operations()) return;
  run_peers(peers_with_kernels(GetParam()), [](Context& context) {
    GpuStream one_stream;
    const Stream stream = one_stream.stream();
    for (const bool releases : {false, true}) {
      Assorted all(context, GetParam(), one_stream, std::vector<std::size_t>(65, 13));
      if (releases) {
        all.plan.start(stream);
        all.plan.wait(stream);
        context.synchronize(stream);
      }
      board().meet(context);
      std::atomic<bool> may_go{context.rank() != 0};
      if (context.rank() == 0) {
        one_stream.run([&] { may_go.wait(false); });
        const Refusals refusals(1, 1, Refused::at_once);
        EXPECT_TRUE(has_failed([&] {
          releases ? all.plan.release(stream) : all.plan.start(stream);
          context.check();
        }));
      }
      const auto close = [&](auto& ends) {
        if (!may_go) {
          expect_code(Code::timeout, [&] { ends.front().close(50ms); });
          may_go = true;
          may_go.notify_one();
        }
        for (auto& end : ends) end.close(10s);
      };
      releases ? close(all.receivers) : close(all.senders);
      releases ? close(all.senders) : close(all.receivers);
      while (has_failed([&] { context.check(); })) {  // of each end
      }
      board().meet(context);
    }
  });
}

/// An engine that waits for a ring, or to arm a put, polls in each turn, until the channel is closed. The NIC of tests
/// can be armed for one of two puts.
TEST_P(GpuPlansRung, or_puts_whose_rings_are_refused_let_the_engine_sleep) {
  if (!may_refuse_operations()) return;
  run_peers(peers_of(GetParam(), 1), [](Context& context) {
    const GpuCase& one = GetParam();
    const Piece source(context, one.source, one.bytes);
    const Piece target(context, one.target, 2 * one.bytes);
    GpuStream stream;
    for (const unsigned refused : {1U, 1000U}) {  // without the mark behind it, or with it
      Sender sender = context.sender(0, kTag, source.slice(), {.stream = stream.stream()});
      Receiver receiver = context.receiver(0, kTag, target.slice(), {.depth = 2});
      sender.wait_connected();
      std::atomic<bool> may_go{false};
      stream.run([&] { may_go.wait(false); });
      sender.put(stream.stream());
      {
        const Refusals refusals(0, refused, Refused::at_once);
        EXPECT_TRUE(has_failed([&] { sender.put(stream.stream()); }));
      }
      // An engine that polls words for a ring rests thousands of times a second; one that repeats poison, a hundred.
      const auto sleeps = [] {
        const std::uint64_t before = rests();
        std::this_thread::sleep_for(100ms);
        return rests() - before < 100;
      };
      // Without marks it cannot know that the first ring will come.
      if (refused > 1) expect_within(10s, sleeps);
      may_go = true;
      may_go.notify_one();
      EXPECT_TRUE(has_failed([&] { context.synchronize(stream.stream()); }));
      expect_within(10s, sleeps);
      sender.close();
      receiver.close();
      while (has_failed([&] { context.check(); })) {  // of each end
      }
    }
  });
}

/// Memory of another GPU, to which this process was given no access: the driver copies there, a kernel would not get
/// there.
TEST_P(GpuPlansOfThreads, or_puts_use_no_kernel_where_it_does_not_reach) {
  run_peers(peers_with_kernels(GetParam()), [](Context& context) {
    constexpr std::size_t kBytes = 64;
    const bool two = gpus() > 1;
    const GpuBuffer own(kBytes);
    const GpuBuffer others(kBytes, two ? 1 : 0);
    const Region from = context.region(own.data(), kBytes);
    const Region there = context.region(others.data(), kBytes);
    std::vector<std::byte> bytes(kBytes);
    fill(bytes, {context.rank(), kTag, 1});
    gpu_copy(own.data(), bytes.data(), kBytes);
    GpuStream stream;
    Sender sender = context.sender(1 - context.rank(), kTag, from.all());
    Receiver receiver = context.receiver(1 - context.rank(), kTag, there.all());
    board().meet(context);
    sender.put(stream.stream());
    receiver.wait(stream.stream());
    context.synchronize(stream.stream());
    EXPECT_EQ(sender.describe().find(kByKernel) == std::string::npos, two) << sender.describe();
    gpu_copy(bytes.data(), others.data(), kBytes);
    EXPECT_EQ(difference(bytes, {1 - context.rank(), kTag, 1}), "");
    board().meet(context);
  });
}

TEST_P(GpuPlansInReach, or_puts_say_up_to_which_size_a_kernel_copies) {
  run_peers(peers_with_kernels(GetParam()), [](Context& context) {
    GpuStream stream;
    const Assorted all(context, GetParam(), stream, {13});
    EXPECT_NE(all.senders[0].describe().find("up to 4096 bytes by a kernel"), std::string::npos)
        << all.senders[0].describe();
    board().meet(context);
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, GpuPlans, testing::ValuesIn(plan_cases()), GpuCaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, GpuPlansOfStreams,
                         testing::ValuesIn(plan_cases_on({"threads", "shm", "shm_between_threads"})), GpuCaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, GpuPlansInReach, testing::ValuesIn(plan_cases_on({"threads", "shm"})), GpuCaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, GpuPlansOfThreads, testing::ValuesIn(plan_cases_on({"threads"})), GpuCaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, GpuPlansRung, testing::ValuesIn(plan_cases_on({"posted", "rung"})), GpuCaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, GpuPlansNear,
                         testing::ValuesIn(only(plan_cases(), [](const GpuCase& one) { return !one.ground.network; })),
                         GpuCaseName());

}  // namespace
