// SPDX-License-Identifier: Apache-2.0
// A rank that sees signal n sees all data of n, and no signal is lost or early: several channels and streams, memory
// traffic beside, and every word of every slot looked at in the order of the receiver's stream.
#include <cstring>
#include <deque>
#include <new>
#include <thread>

#include "tests/conformance/gpu_cases.hpp"
#include "tests/device/litmus.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr int kLitmusChannels = 2;  // ranks that are threads share the GPU's hardware queues
constexpr int kDepth = 8;
constexpr std::uint64_t kAtOnce = 40;  // epochs enqueued before the host waits: a GPU's stream holds so many
constexpr std::uint64_t kMillion = 1'000'000;

/// Puts and waits by the stream, by a graph of a plan's steps, or by a kernel that holds the channel.
enum class Way { stream, graph, kernel };

struct LitmusCase {
  Case where;
  Way way = Way::stream;
  std::uint64_t signals = 0;  ///< of all channels

  std::string name() const {
    constexpr const char* kWays[] = {"stream", "graph", "kernel"};
    constexpr const char* kKinds[] = {"_inline_", "_host_", "_cuda_"};
    return where.ground.name +
           kKinds[where.cuda   ? 2
                  : where.host ? 1
                               : 0] +
           kWays[static_cast<int>(way)] + "_" + std::to_string(where.bytes) + "B";
  }
};

std::ostream& operator<<(std::ostream& out, const LitmusCase& one) { return out << one.name(); }

/// Copies between two large pieces of memory, of the GPU or of the host, while it lives.
class Traffic {
 public:
  Traffic(Context& context, bool cuda)
      : memory_(context.allocate(2 * kBytes, cuda ? Space::device : Space::host)),
        copying_([this, cuda](const std::stop_token& stop) {
          std::optional<GpuStream> stream;
          if (cuda) stream.emplace();
          for (std::size_t turn = 0; !stop.stop_requested(); ++turn) {
            copy(stream, turn % 2 * kBytes, (turn + 1) % 2 * kBytes);
            std::this_thread::yield();
          }
        }) {}

 private:
  static constexpr std::size_t kBytes = 512 * 1024;

  void copy(std::optional<GpuStream>& stream, std::size_t to, std::size_t from) {
    if (!stream) {
      std::memcpy(memory_.data() + to, memory_.data() + from, kBytes);
      return;
    }
    stream->copy(memory_.data() + to, memory_.data() + from, kBytes);
    stream->synchronize();
  }

  Memory memory_;
  std::jthread copying_;
};

struct LitmusKernels {
  GpuKernel fill{LitmusArgs::kFill};
  GpuKernel check{LitmusArgs::kCheck};
  GpuKernel send{LitmusSend::kKernel};
  GpuKernel receive{LitmusReceive::kKernel};
};

/// One end of a channel, with its slots, a stream of its own, and what that has counted.
class Lane {
 public:
  /// `kernels`: null where there is no GPU.
  Lane(Context& context, const Case& one, std::uint64_t channel, const LitmusKernels* kernels)
      : context_(context), kernels_(kernels), channel_(channel), order_(one),
        slots_(context.allocate(one.bytes * kDepth, one.cuda ? Space::device : Space::host)),
        count_(context.allocate(sizeof(LitmusCount), Space::pinned)) {
    new (count_.data()) LitmusCount{};
  }

  Stream stream() { return order_.stream(); }
  Order& order() { return order_; }
  Slice slots() const { return slots_.all(); }
  Tag tag() const { return kTag + static_cast<Tag>(channel_); }
  LitmusCount& count() const { return *std::launder(reinterpret_cast<LitmusCount*>(count_.data())); }
  void synchronize() { context_.synchronize(stream()); }

  void fill(const Slice& slot) {
    run(&LitmusKernels::fill, LitmusArgs{slot.data(), slot.bytes(), channel_, &count()}, [](const LitmusArgs& args) {
      litmus_fill(kernel::Thread(), args.slot, args.bytes, args.channel, *args.count);
    });
  }
  void check(const Slice& slot) {
    run(&LitmusKernels::check, LitmusArgs{slot.data(), slot.bytes(), channel_, &count()}, [](const LitmusArgs& args) {
      litmus_check(kernel::Thread(), args.slot, args.bytes, args.channel, *args.count);
    });
  }
  void rounds(const DeviceSender& end) {
    run(&LitmusKernels::send, LitmusSend{{end, kAtOnce, channel_, &count()}},
        [](const LitmusSend& args) { litmus_send(kernel::Thread(), args); });
  }
  void rounds(const DeviceReceiver& end) {
    run(&LitmusKernels::receive, LitmusReceive{{end, kAtOnce, channel_, &count()}},
        [](const LitmusReceive& args) { litmus_receive(kernel::Thread(), args); });
  }

 private:
  template <class Args, class Body>
  void run(GpuKernel LitmusKernels::*which, const Args& args, Body on_host) {
    constexpr unsigned kLitmusThreads = 128;
    if (kernels_ == nullptr) return order_.run([args, on_host] { on_host(args); });
    (kernels_->*which).launch(*order_.gpu(), args, kLitmusThreads);
  }

  Context& context_;
  const LitmusKernels* kernels_;
  std::uint64_t channel_;
  Order order_;
  Memory slots_;
  Memory count_;
};

Sender open(Context& context, const Lane& lane, Sender*) {
  return context.sender(1 - context.rank(), lane.tag(), lane.slots(), {.depth = kDepth});
}
Receiver open(Context& context, const Lane& lane, Receiver*) {
  return context.receiver(1 - context.rank(), lane.tag(), lane.slots(), {.depth = kDepth});
}

void step(Lane& lane, Sender& sender) {
  lane.fill(sender.acquire(lane.stream()));
  sender.put(lane.stream());
}
void step(Lane& lane, Receiver& receiver) {
  lane.check(receiver.wait(lane.stream()));
  receiver.release(lane.stream());
}
void step(Lane& lane, Plan& plan, const Sender& sender) {
  plan.acquire(lane.stream());
  lane.fill(plan.slot(sender));
  plan.start(lane.stream());
}
void step(Lane& lane, Plan& plan, const Receiver& receiver) {
  plan.wait(lane.stream());
  lane.check(plan.slot(receiver));
  plan.release(lane.stream());
}

/// Enqueues kAtOnce epochs.
using Advance = std::function<void()>;

template <class Channel>
Advance way_of(Way way, Context& context, Lane& lane, Channel& channel) {
  if (way == Way::kernel) return [&lane, end = channel.on_device(lane.stream())] { lane.rounds(end); };
  if (way == Way::stream) {
    return [&] {
      for (std::uint64_t i = 0; i < kAtOnce; ++i) step(lane, channel);
    };
  }
  const auto plan = std::make_shared<Plan>(context.plan());
  plan->add(channel).commit(lane.stream());
  const auto graph = std::make_shared<GpuGraph>(*lane.order().gpu(), [&] {
    for (int i = 0; i < kDepth; ++i) step(lane, *plan, channel);
  });
  return [plan, graph, &lane] {
    for (std::uint64_t i = 0; i < kAtOnce; i += kDepth) graph->launch(*lane.order().gpu());
  };
}

/// This rank's ends of all channels.
template <class Channel>
void drive(Context& context, const LitmusCase& one) {
  std::optional<LitmusKernels> kernels;
  if (one.where.cuda) kernels.emplace();
  std::deque<Lane> lanes;
  std::vector<Channel> channels;
  for (std::uint64_t i = 0; i < kLitmusChannels; ++i) {
    Lane& lane = lanes.emplace_back(context, one.where, i, kernels ? &*kernels : nullptr);
    channels.push_back(open(context, lane, static_cast<Channel*>(nullptr)));
  }
  board().meet(context);  // a GPU gives no memory behind a parked stream, and loads no kernel while one captures
  std::vector<Advance> ways;
  for (std::size_t i = 0; i < kLitmusChannels; ++i) ways.push_back(way_of(one.way, context, lanes[i], channels[i]));
  const Traffic traffic(context, one.where.cuda);
  board().meet(context);
  const std::uint64_t each = one.signals / kLitmusChannels;
  for (std::uint64_t epoch = 0; epoch < each; epoch += kAtOnce) {
    for (const Advance& advance : ways) advance();
    for (Lane& lane : lanes) lane.synchronize();
  }
  for (std::size_t i = 0; i < kLitmusChannels; ++i) {
    EXPECT_EQ(channels[i].epoch(), each);
    EXPECT_EQ(lanes[i].count().epochs, each);
    EXPECT_EQ(lanes[i].count().wrong, 0U) << "the last epoch that was not all there; channel " << i;
    EXPECT_EQ(lanes[i].count().result, 0U);
  }
  board().meet(context);
  if constexpr (std::is_same_v<Channel, Receiver>) {
    for (Receiver& receiver : channels) {
      if (one.way == Way::stream) {
        EXPECT_FALSE(receiver.test()) << "a signal for which there was no put";
      }
    }
  }
  board().meet(context);
}

class Litmus : public testing::TestWithParam<LitmusCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Litmus);

TEST_P(Litmus, data_is_there_before_its_signal) {
  const LitmusCase& one = GetParam();
  Peers peers = one.where.peers();
  peers.limit = std::max(60'000ms, std::chrono::milliseconds(one.signals / 3));
  run_peers(peers, [&one](Context& context) {
    return context.rank() == 0 ? drive<Sender>(context, one) : drive<Receiver>(context, one);
  });
}

/// `signals(case, way)`: how many of them.
template <class Signals>
std::vector<LitmusCase> litmus_cases(const std::vector<Case>& places, Signals signals) {
  std::vector<LitmusCase> cases;
  for (const Case& where : places) {
    for (const Way way : {Way::stream, Way::graph, Way::kernel}) {
      if (way == Way::graph && !where.cuda) continue;
      if (way == Way::kernel && !where.host) continue;
      if (way != Way::stream && where.ground.arms) continue;
      cases.push_back({where, way, signals(where, way)});
    }
  }
  return cases;
}

std::vector<LitmusCase> quick_cases(const std::vector<Ground>& grounds, int rounds) {
  return litmus_cases(with_sizes(on(grounds, stream_cases()), {8, 65536}), [rounds](const Case& where, Way) {
    const int of_case = where.ground.slow ? 1 : where.bytes == 8 ? rounds : rounds / 5;
    return kLitmusChannels * kAtOnce * static_cast<std::uint64_t>(of_case);
  });
}

/// The kernels of two processes have the GPU in turn: a message takes longer.
std::vector<LitmusCase> full_litmus_cases() {
  if (!wants_full()) return {};
  return litmus_cases(with_sizes(on(all_grounds(), stream_cases()), {8, 512, 65536}), [](const Case& where, Way way) {
    return kMillion / (way == Way::stream ? 1 : 10) / (where.bytes > 512 ? 10 : 1);
  });
}

struct LitmusName {
  std::string operator()(const testing::TestParamInfo<LitmusCase>& info) const { return info.param.name(); }
};

INSTANTIATE_IN_ITS_RANKS(Quick, Litmus, testing::ValuesIn(quick_cases(grounds(), 200)), LitmusName());
INSTANTIATE_IN_ITS_RANKS(Wrapped, Litmus, testing::ValuesIn(quick_cases({wrapped_grounds().front()}, 20)),
                         LitmusName());
INSTANTIATE_IN_ITS_RANKS(Full, Litmus, testing::ValuesIn(full_litmus_cases()), LitmusName());

}  // namespace
