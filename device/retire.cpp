// SPDX-License-Identifier: Apache-2.0
#include "device/retire.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/fork.hpp"

namespace sluice::device {
namespace {

struct Retired {
  std::recursive_mutex mutex;  // `reap` holds it where it calls `any_parked`
  std::vector<const StreamUser*> users;
  std::vector<std::function<void()>> waiting;
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

void reap() {
  const std::lock_guard one_at_a_time(g_retired->reaping);
  std::vector<std::function<void()>> due;
  // Does not wait: the thread that gives work may wait for this one.
  const std::unique_lock nobody_gives(g_retired->giving, std::try_to_lock);
  if (!nobody_gives) return;
  {
    const std::lock_guard lock(g_retired->mutex);
    if (g_retired->waiting.empty() || any_parked()) return;
    due.swap(g_retired->waiting);
  }
  for (const auto& free : due) free();
}

}  // namespace sluice::device
