// SPDX-License-Identifier: Apache-2.0
#include "runtime/failures.hpp"

#include <utility>

namespace sluice::runtime {

void Failures::check() {
  if (untold_count_.load(std::memory_order_acquire) == 0) return;
  std::unique_lock lock(mutex_);
  if (untold_.empty()) return;
  const Error oldest = std::move(untold_.front());
  untold_.pop_front();
  untold_count_.store(untold_.size(), std::memory_order_release);
  lock.unlock();
  throw Error(oldest);
}

void Failures::notice(Notice notice) noexcept {
  const std::lock_guard lock(mutex_);
  notices_.push_back(std::move(notice));
}

std::vector<Notice> Failures::take_notices() {
  const std::lock_guard lock(mutex_);
  return std::exchange(notices_, {});
}

}  // namespace sluice::runtime
