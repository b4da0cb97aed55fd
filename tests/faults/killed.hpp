// SPDX-License-Identifier: Apache-2.0
// Rank 1 is killed, and the others notice.
#pragma once

#include <signal.h>

#include <cstdlib>

#include "tests/conformance/released.hpp"

namespace sluice::test {

inline constexpr std::size_t kReady = 0;  ///< on the board: how many ranks are where the victim may die
/// How long hosts and their streams may wait still for a dead rank: ten times the two seconds that are promised them.
/// What waits on a GPU is promised one (gpu_released).
inline constexpr auto kNoticed = 20s;

[[noreturn]] inline void die() {
  ::raise(SIGKILL);
  std::abort();
}

/// Rank 1's end, once `ready` ranks have said that they are where it may come.
[[noreturn]] inline void die_when_ready(std::uint64_t ready = 1) {
  board().await(kReady, ready);
  die();
}

/// Rank 1 was killed, and nobody else had anything to say.
inline void expect_only_rank_1_killed(const Ended& ended) {
  EXPECT_FALSE(ended.hung);
  EXPECT_EQ(ended.code, 128 + SIGKILL);
  EXPECT_EQ(ended.text, "sluice-run: rank 1 was ended by signal 9 (SIGKILL)\n");
}

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
