// SPDX-License-Identifier: Apache-2.0
#include "device/retire.hpp"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include "base/fork.hpp"

namespace sluice::device {
namespace {

struct Retired {
  std::recursive_mutex mutex;  // `reap` holds it where it calls `any_parked`
  std::vector<const StreamUser*> users;
  std::deque<std::function<void()>> waiting;
  std::recursive_mutex reaping;  // in order: drivers give pages up before they are unmapped
  std::shared_mutex giving;
};

base::OnePerProcess<Retired> g_retired;

}  // namespace

void add_user(const StreamUser& user) {
  const std::lock_guard lock(g_retired->mutex);
  g_retired->users.push_back(&user);
}

void remove_user(const StreamUser& user) noexcept {
  const std::lock_guard lock(g_retired->mutex);
  std::erase(g_retired->users, &user);
}

bool any_parked() {
  const std::lock_guard lock(g_retired->mutex);
  return std::ranges::any_of(g_retired->users, &StreamUser::may_be_parked);
}

std::shared_lock<std::shared_mutex> giving_work() { return std::shared_lock(g_retired->giving); }

void retire(std::function<void()> free) {
  {
    const std::lock_guard lock(g_retired->mutex);
    g_retired->waiting.push_back(std::move(free));
  }
  reap();
}

/// One after the other: between two of them other threads may give work, and perhaps must.
void reap() {
  const std::lock_guard one_at_a_time(g_retired->reaping);
  for (;;) {
    // Does not wait: the thread that gives work may wait for this one.
    const std::unique_lock nobody_gives(g_retired->giving, std::try_to_lock);
    if (!nobody_gives) return;
    std::function<void()> free;
    {
      const std::lock_guard lock(g_retired->mutex);
      if (g_retired->waiting.empty() || any_parked()) return;
      free = std::move(g_retired->waiting.front());
      g_retired->waiting.pop_front();
    }
    free();
  }
}

}  // namespace sluice::device
