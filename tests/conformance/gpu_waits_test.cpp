// SPDX-License-Identifier: Apache-2.0
// Kernels that wait where GPUs' streams cannot: used only where a program asks for them.
#include <string_view>

#include "base/words.hpp"
#include "device/gpu_call.hpp"
#include "device/reach.hpp"
#include "tests/conformance/gpu_cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

// An emulated driver has them, or not.
constexpr const char* kNoOperations = "EMUCUDA_WORD_OPERATIONS=0";
constexpr const char* kOperations = "EMUCUDA_WORD_OPERATIONS=1";
constexpr const char* kByKernels = "SLUICE_GPU_WAITS=kernel";

class GpuWaits : public testing::TestWithParam<GpuCase> {
 protected:
  static void run(std::vector<std::string> variables, const Body& body, int ranks = 2) {
    Peers peers = peers_of(GetParam(), ranks);
    peers.environment = std::move(variables);
    run_peers(peers, body);
  }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuWaits);

TEST_P(GpuWaits, are_refused_where_streams_cannot_and_the_error_says_what_can) {
  if (!gpu_is_emulated()) return skipped_here("streams of this GPU can wait");
  run({kNoOperations, "SLUICE_GPU_WAITS=stream"}, [](Context& context) {
    const GpuStream own;
    const Memory memory = context.allocate(64);
    Sender sender = context.sender(1 - context.rank(), kTag, memory.all());
    const auto error = expect_code(Code::unsupported, [&] { sender.put(own.stream()); });
    ASSERT_TRUE(error);
    EXPECT_NE(std::string(error->what()).find(kByKernels), std::string::npos) << error->what();
    board().meet(context);
  });
}

/// On AMD the queue itself can wait, for signal memory alone.
class GpuWaitsOfHip : public GpuWaits {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuWaitsOfHip);

TEST_P(GpuWaitsOfHip, are_refused_where_queues_wait_for_none_of_our_words) {
  constexpr const char* kByQueues = "GPU_STREAMOPS_CP_WAIT=1";
  run({kByQueues, "SLUICE_GPU_WAITS=stream"}, [](Context& context) {
    const GpuStream own;
    const Memory memory = context.allocate(64);
    Sender sender = context.sender(1 - context.rank(), kTag, memory.all());
    const auto error = expect_code(Code::unsupported, [&] { sender.put(own.stream()); });
    ASSERT_TRUE(error);
    for (const char* const said : {"GPU_STREAMOPS_CP_WAIT", "unset it", kByKernels})
      EXPECT_NE(std::string(error->what()).find(said), std::string::npos) << error->what();
    board().meet(context);
  });
  run({kByQueues, kByKernels}, [](Context& context) {
    const GpuStream own;
    const Memory memory = context.allocate(128);
    Sender sender = context.sender(1 - context.rank(), kTag, memory.slice(0, 64));
    Receiver receiver = context.receiver(1 - context.rank(), kTag, memory.slice(64, 64));
    sender.put(own.stream());
    receiver.wait(own.stream());
    context.synchronize(own.stream());
    board().meet(context);
  });
}

TEST_P(GpuWaits, are_of_kernels_where_the_user_wants_it_and_described) {
  run({kNoOperations, kByKernels}, [](Context& context) {
    const GpuCase& one = GetParam();
    const GpuStream own;
    const Stream stream = own.stream();
    const Piece source(context, one.source, one.bytes);
    const Piece target(context, one.target, one.bytes);
    Sender sender = context.sender(1 - context.rank(), kTag, source.slice());
    Receiver receiver = context.receiver(1 - context.rank(), kTag, target.slice());
    for (int epoch = 0; epoch < 20; ++epoch) {
      sender.put(stream);
      receiver.wait(stream);
      receiver.release(stream);
    }
    context.synchronize(stream);
    for (const std::string& text : {sender.describe(), receiver.describe()})
      EXPECT_NE(text.find("kernels wait on its GPU's streams"), std::string::npos) << text;
    board().meet(context);
  });
}

/// Words that kernels cannot write, such as registers of a NIC, the stream writes itself, in order: a word plays a
/// register.
TEST_P(GpuWaits, of_kernels_come_before_what_the_stream_writes_itself) {
  run(
      {kOperations, kByKernels},
      [](Context&) {
        GpuStream own;
        const Stream stream = own.stream();
        device::Driver& driver = *device::driver(stream.kind());
        driver.load_kernels(driver.device_of(stream.handle()));
        base::Progress& awaited = base::take_progress();
        base::Progress& written = base::take_progress();
        for (base::Progress* const one : {&awaited, &written})
          device::reach_for_ever(driver, base::page_of(one->word), base::Progress::kPage);
        device::GpuCall call(stream);
        call.wait(awaited.word, 1);
        call.write(static_cast<void*>(&written.word.value), 7);
        call.wait(written.word, 7);
        call.issue();
        expect_for(20ms, [&] { return !base::reached(written.word, 1); });
        base::raise(awaited.word, 1, awaited.parking);
        own.synchronize();
        EXPECT_EQ(written.word.value.load(), 7U);
        base::give_back(awaited);
        base::give_back(written);
      },
      1);
}

INSTANTIATE_IN_ITS_RANKS(Quick, GpuWaits, testing::ValuesIn(one_case_on({"threads", "shm"})), GpuCaseName());
INSTANTIATE_IN_ITS_RANKS(Quick, GpuWaitsOfHip, testing::ValuesIn([] {
                           return by_hip() ? one_case_on({"threads", "shm"}) : std::vector<GpuCase>();
                         }()),
                         GpuCaseName());

}  // namespace
