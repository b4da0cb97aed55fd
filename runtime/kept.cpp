// SPDX-License-Identifier: Apache-2.0
#include "runtime/kept.hpp"

#include <algorithm>
#include <exception>
#include <iterator>
#include <mutex>
#include <vector>

#include "base/fork.hpp"
#include "base/log.hpp"
#include "runtime/channel.hpp"
#include "runtime/registry.hpp"
#include "runtime/window.hpp"

namespace sluice::runtime {
namespace {

using base::Clock;

/// Deadline of the thread for leaving channels open: see `time_to_leave`.
thread_local std::optional<Clock::time_point> leaves_by;

struct Kept {
  std::mutex mutex;
  std::vector<std::shared_ptr<ChannelEnd>> until_closed;
  std::vector<std::shared_ptr<WindowCore>> windows;
  std::vector<std::shared_ptr<ChannelEnd>> for_ever;
};
base::OnePerProcess<Kept> g_kept;

}  // namespace

Timeout time_to_leave(Timeout most) noexcept {
  constexpr Timeout kLeaving = std::chrono::seconds(5);
  const auto now = Clock::now();
  if (!leaves_by || now > *leaves_by + kLeaving) leaves_by = now + std::min(most, kLeaving);
  return std::max<Timeout>(*leaves_by - now, Timeout::zero());
}

void begin_anew() noexcept { leaves_by.reset(); }

void abandon(std::shared_ptr<ChannelEnd> end) noexcept {
  if (end == nullptr || !end->origin.here() || end->closed()) return;
  if (!end->leaves_because().empty()) return;  // abandoned before: it is kept
  std::optional<Timeout> limit;
  if (std::uncaught_exceptions() > 0) {
    // This rank ends with the channel open: the peer loses it, and gets a moment to release the memory.
    end->leave_destroyed("rank " + std::to_string(end->opening.rank) + " left with an exception");
    limit = time_to_leave(end->services().limits.connect);
  }
  try {
    end->close(limit);
  } catch (const std::exception& reason) {
    base::log(base::LogLevel::warn, std::string("kept what a channel still uses: ") + reason.what());
    const std::lock_guard lock(g_kept->mutex);
    g_kept->until_closed.push_back(std::move(end));
  }
}

void abandon(std::shared_ptr<WindowCore> window) noexcept {
  if (window == nullptr || !window->origin.here() || window->closed()) return;
  std::optional<Timeout> limit;
  const Services& services = window->services();
  if (std::uncaught_exceptions() > 0) {
    services.registry.leave(*window, "rank " + std::to_string(window->opening.rank) + " left with an exception");
    limit = time_to_leave(services.limits.connect);
  }
  try {
    window->close(limit);
  } catch (const std::exception& reason) {
    base::log(base::LogLevel::warn, std::string("kept what peers still use: ") + reason.what());
    const std::lock_guard lock(g_kept->mutex);
    g_kept->windows.push_back(std::move(window));
  }
}

namespace {

/// Closes those that can be closed at once, without the mutex: opening a channel calls this too.
template <class What>
void reclaim(std::vector<std::shared_ptr<What>> Kept::*kept) {
  std::vector<std::shared_ptr<What>> waiting;
  {
    const std::lock_guard lock(g_kept->mutex);
    waiting.swap((*g_kept).*kept);
  }
  std::erase_if(waiting, [](const auto& one) {
    base::Limit at_once(Timeout::zero());
    return one->close_within(at_once);
  });
  const std::lock_guard lock(g_kept->mutex);
  auto& kept_on = (*g_kept).*kept;
  kept_on.insert(kept_on.end(), std::make_move_iterator(waiting.begin()), std::make_move_iterator(waiting.end()));
}

}  // namespace

void reclaim() {
  reclaim(&Kept::until_closed);
  reclaim(&Kept::windows);
}

void keep_for_ever(std::shared_ptr<ChannelEnd> end) {
  const std::lock_guard lock(g_kept->mutex);
  g_kept->for_ever.push_back(std::move(end));
}

}  // namespace sluice::runtime
