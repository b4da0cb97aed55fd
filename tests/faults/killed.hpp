// SPDX-License-Identifier: Apache-2.0
// Rank 1 is killed, and the others notice.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "tests/conformance/released.hpp"

namespace sluice::test {

inline constexpr std::size_t kReady = 0;  ///< on the board: how many ranks are where the victim may die
inline constexpr std::size_t kPid = 1;    ///< on the board: the process that may be stopped
/// How long hosts and their streams may wait still for a dead rank: ten times the two seconds that are promised them.
/// Waits on a GPU have a limit of their own (gpu_released).
inline constexpr auto kNoticed = 20s;

/// A suite whose ranks are killed, where that is possible.
class WithKills : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const std::string why_not = why_not_kill(GetParam().ground);
    if (why_not.empty()) return;
    std::printf("SKIPPED-HERE: %s\n", why_not.c_str());
    GTEST_SKIP() << why_not;
  }
};

[[noreturn]] inline void die() {
  ::raise(SIGKILL);
  std::abort();
}

/// Rank 1's end, once `ready` ranks have said that they are where it may come.
[[noreturn]] inline void die_when_ready(std::uint64_t ready = 1) {
  board().await(kReady, ready);
  die();
}

/// Stops the process that may be stopped; returns it.
inline pid_t stop() {
  board().await(kPid, 1);
  const auto process = static_cast<pid_t>(board().word(kPid).load());
  ::kill(process, SIGSTOP);
  expect_within(10s, [&] {
    std::string word;
    std::ifstream state("/proc/" + std::to_string(process) + "/stat");
    for (int i = 0; i < 3; ++i) state >> word;
    return word == "T";
  });
  return process;
}

/// This process, by another.
inline void can_be_stopped() { board().set(kPid, static_cast<std::uint64_t>(::getpid())); }

/// This rank was killed, and no other rank reported anything.
inline void expect_only_killed(Rank rank, const Ended& ended) {
  EXPECT_FALSE(ended.hung);
  EXPECT_EQ(ended.code, 128 + SIGKILL);
  EXPECT_EQ(ended.text, "sluice-run: rank " + std::to_string(rank) + " was ended by signal 9 (SIGKILL)\n");
}
inline void expect_only_rank_1_killed(const Ended& ended) { expect_only_killed(1, ended); }

/// Asserts that `call` ends in time with the loss of rank 1. `waits`: what waits in it.
template <class F>
void expect_loss_of_rank_1(const Context& context, F call, Stream waits = {}) {
  const bool is_gpu = waits.kind() == Stream::Kind::cuda || waits.kind() == Stream::Kind::hip;
  std::optional<Error> error;
  expect_released([&] { error = expect_code(Code::peer_lost, call); }, 0ms, is_gpu ? gpu_released() : kNoticed);
  if (!error) return;
  EXPECT_EQ(error->rank(), context.rank());
  EXPECT_EQ(error->peer(), 1);
  const std::string what = error->what();
  EXPECT_TRUE(what.find("rank 1") != std::string::npos || what.find("peer 1") != std::string::npos) << what;
}

}  // namespace sluice::test
