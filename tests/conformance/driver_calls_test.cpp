// SPDX-License-Identifier: Apache-2.0
// The cost of a verb on a GPU's stream for the host: calls of the driver, which an emulated driver counts.
#include <dlfcn.h>

#include <optional>

#include "tests/conformance/gpu_cases.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

constexpr std::size_t kLargePut = 100'000;

class DriverCalls : public testing::TestWithParam<GpuCase> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DriverCalls);

struct Given {
  unsigned long long calls = 0;
  unsigned long long argument_bytes = 0;  // of kernels
};

/// Calls that the calling thread has made so far. Empty: only an emulated driver counts.
std::optional<Given> given() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  using Count = void (*)(unsigned long long* calls, unsigned long long* argument_bytes);
  const auto count = driver == nullptr ? nullptr : reinterpret_cast<Count>(dlsym(driver, "emucuda_given"));
  if (count == nullptr) return std::nullopt;
  Given so_far;
  count(&so_far.calls, &so_far.argument_bytes);
  return so_far;
}

/// Calls that `work` makes.
template <class Work>
Given given_by(Work work) {
  const Given before = given().value_or(Given{});
  work();
  const Given after = given().value_or(Given{});
  return {after.calls - before.calls, after.argument_bytes - before.argument_bytes};
}

TEST_P(DriverCalls, of_a_verb_are_three_questions_and_what_there_is_to_do) {
  Peers peers = peers_of(GetParam(), 1);
  peers.environment = {"SLUICE_GPU_WAITS=stream"};
  run_peers(peers, [](Context& context) {
    if (!given()) return skipped_here("this driver counts no calls");
    constexpr unsigned kAsksOfStream = 2;               // whether it captures, and which one it is
    constexpr unsigned kQuestions = kAsksOfStream + 1;  // and which GPU is current
    constexpr unsigned kFewArguments = 256;
    constexpr unsigned kOneKernel = 1, kCopyAndWords = 2, kWords = 1;
    const GpuCase& one = GetParam();
    const GpuStream own;
    const Stream stream = own.stream();
    const Piece source(context, one.source, one.bytes);
    const Piece target(context, one.target, one.bytes);
    Sender sender = context.sender(0, kTag, source.slice());
    Receiver receiver = context.receiver(0, kTag, target.slice());
    constexpr int kWarmUp = 3;
    for (int epoch = 1; epoch <= 2 * kWarmUp; ++epoch) {
      const Given acquire = given_by([&] { sender.acquire(stream); });
      const Given put = given_by([&] { sender.put(stream); });
      const Given wait = given_by([&] { receiver.wait(stream); });
      const Given release = given_by([&] { receiver.release(stream); });
      context.synchronize(stream);  // so that no put finds a credit missing
      if (epoch <= kWarmUp) continue;
      EXPECT_EQ(acquire.calls, kAsksOfStream);
      EXPECT_EQ(put.calls, kQuestions + (one.bytes < kLargePut ? kOneKernel : kCopyAndWords));
      EXPECT_LE(put.argument_bytes, kFewArguments);
      EXPECT_EQ(wait.calls, kQuestions + kWords);
      EXPECT_EQ(release.calls, kQuestions + kWords);
    }
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, DriverCalls, testing::ValuesIn([] {
                           std::vector<GpuCase> cases;
                           for (const Ground& ground : gpu_grounds()) {
                             if (ground.name != "threads" && ground.name != "shm") continue;
                             for (const std::size_t bytes : {std::size_t{64}, kLargePut})
                               cases.push_back({.ground = ground, .bytes = bytes});
                           }
                           return cases;
                         }()),
                         GpuCaseName());

}  // namespace
