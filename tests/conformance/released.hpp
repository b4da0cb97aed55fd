// SPDX-License-Identifier: Apache-2.0
// How long what waits on a GPU may take to be released.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "tests/conformance/cases.hpp"

namespace sluice::test {

/// How long a stream or a kernel of a GPU may still wait once its peer is dead, its limit has expired or the context
/// was aborted: ten times the second that is promised, since a stricter test would fail on a busy machine.
/// SLUICE_USER_TEST_RELEASED_MS sets another limit: `./dev gpu` sets one second.
inline std::chrono::milliseconds gpu_released() {
  const char* const asked = std::getenv("SLUICE_USER_TEST_RELEASED_MS");
  return asked != nullptr ? std::chrono::milliseconds(std::atoi(asked)) : 10s;
}

/// Appends how long it took to the file that SLUICE_USER_TEST_RELEASED_FILE names, if it names one: the output of ranks
/// is not shown.
inline void note_released(std::chrono::nanoseconds took) {
  const char* const path = std::getenv("SLUICE_USER_TEST_RELEASED_FILE");
  std::FILE* const file = path != nullptr ? std::fopen(path, "a") : nullptr;
  if (file == nullptr) return;
  const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
  std::fprintf(file, "%s.%s %.3f\n", test->test_suite_name(), test->name(), static_cast<double>(took.count()) / 1e6);
  std::fclose(file);
}

/// Asserts that `call`, which waits for what is released after `timeout`, ends in `limit` from then on.
template <class F>
void expect_released(F call, std::chrono::milliseconds timeout = 0ms, std::chrono::milliseconds limit = gpu_released(),
                     const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const testing::ScopedTrace trace(file, line, "is to be released");
  const auto before = Clock::now();
  call();
  const auto took = Clock::now() - before - timeout;
  EXPECT_LT(took, limit);
  note_released(took);
}

}  // namespace sluice::test
