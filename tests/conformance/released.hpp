// SPDX-License-Identifier: Apache-2.0
// How long what waits on a GPU may take to be released.
#pragma once

#include "tests/conformance/cases.hpp"

namespace sluice::test {

/// How long a stream or a kernel of a GPU may wait still once its peer is dead, its limit is over or the context was
/// aborted: ten times the second that is promised. A stricter test would fail on a busy machine; how long it takes
/// `sluice-bench failure` measures.
inline constexpr auto kGpuReleased = 10s;

/// Asserts that `call`, which waits for what is released, ends in that time.
template <class F>
void expect_released(F call, std::chrono::milliseconds limit = kGpuReleased, const char* file = __builtin_FILE(),
                     int line = __builtin_LINE()) {
  const testing::ScopedTrace trace(file, line, "is to be released");
  const auto before = Clock::now();
  call();
  EXPECT_LT(Clock::now() - before, limit);
}

}  // namespace sluice::test
