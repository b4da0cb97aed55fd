// SPDX-License-Identifier: Apache-2.0
#include "backends/turns.hpp"

#include <algorithm>

#include "base/limit.hpp"

namespace sluice::backends {

/// Reads the word before it tries, so that those who wait leave its line to the holder. The engine's thread learns
/// meanwhile of the owner's death, and the owner's of the holder's.
bool Turns::await(device::Lane lane, device::Watch& watch, Timeout limit) const noexcept {
  const auto ending = [&] { return lane.host != nullptr && lane.host->ending(); };
  const Timeout of_stream = lane.host != nullptr ? lane.host->timeout() : kForever;
  bool is_mine = false;
  auto ready = [&] {
    is_mine = word_->load(std::memory_order_relaxed) == 0 && try_take();
    return is_mine || watch.failed() || ending();
  };
  constexpr auto call = [](void* asked) { return (*static_cast<decltype(ready)*>(asked))(); };
  base::Lasted lasted;
  base::WaitNote note(lasted.last_look(), "its turn in a window");
  const std::uint64_t next = watch.done.value.load(std::memory_order_relaxed) + 1;
  while (!ready()) {
    if (lasted.so_far() >= limit) return false;
    const auto ask = std::min<base::Clock::duration>(
        watch.waited({.word = &watch.done, .at_least = next, .epoch = next}, lasted.so_far(), of_stream, note),
        limit - lasted.so_far());
    base::spin_then_yield(call, &ready, base::deadline_after(ask));
    if (is_mine) break;
    lasted.look(ask);
  }
  if (!is_mine && ending()) watch.fail(Code::aborted, "the stream was destroyed while it waited for its turn");
  return is_mine;
}

}  // namespace sluice::backends
