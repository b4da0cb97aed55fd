// SPDX-License-Identifier: Apache-2.0
#include "backends/turns.hpp"

namespace sluice::backends {

/// Reads the word before it tries, so that those who wait leave its line to the holder. The engine's thread learns
/// meanwhile of the owner's death, and the owner's of the holder's.
bool Turns::await(const device::Watch& watch) const noexcept {
  bool is_mine = false;
  auto ready = [&] {
    is_mine = word_->load(std::memory_order_relaxed) == 0 && try_take();
    return is_mine || watch.failed();
  };
  constexpr auto call = [](void* asked) { return (*static_cast<decltype(ready)*>(asked))(); };
  while (!base::spin_then_yield(call, &ready, base::Clock::time_point::max())) {
  }
  return is_mine;
}

}  // namespace sluice::backends
