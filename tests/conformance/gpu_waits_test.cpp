// SPDX-License-Identifier: Apache-2.0
// GPUs whose streams cannot wait for words: refused, unless the user wants kernels to wait.
#include "tests/conformance/gpu_cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr Tag kTag = 161;
constexpr const char* kNoOperations = "EMUCUDA_WORD_OPERATIONS=0";
constexpr const char* kByKernels = "SLUICE_GPU_WAITS=kernel";

class GpuWaits : public testing::TestWithParam<GpuCase> {
 protected:
  static void run(std::vector<std::string> variables, const Body& body) {
    if (!gpu_is_emulated()) return skipped_here("this GPU has all that it needs");
    Peers peers = peers_of(GetParam());
    peers.environment = std::move(variables);
    run_peers(peers, body);
  }
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GpuWaits);

TEST_P(GpuWaits, are_refused_where_streams_cannot_and_the_error_says_what_can) {
  run({kNoOperations, "SLUICE_GPU_WAITS=stream"}, [](Context& context) {
    const Memory memory = context.allocate(64);
    Sender sender = context.sender(1 - context.rank(), kTag, memory.all());
    const bool hip = std::getenv("SLUICE_GPUS") != nullptr;
    try {
      sender.put(hip ? Stream::hip(nullptr) : Stream::cuda(nullptr));
      ADD_FAILURE() << "not refused";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::unsupported) << error.what();
      EXPECT_NE(std::string(error.what()).find(kByKernels), std::string::npos) << error.what();
    }
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

INSTANTIATE_TEST_SUITE_P(Quick, GpuWaits, testing::ValuesIn([] {
                           std::vector<GpuCase> cases;
                           for (const Ground& ground : gpu_grounds()) {
                             if (ground.name == "threads" || ground.name == "shm") cases.push_back({.ground = ground});
                           }
                           return cases;
                         }()),
                         GpuCaseName());

}  // namespace
