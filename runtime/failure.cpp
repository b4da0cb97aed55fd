// SPDX-License-Identifier: Apache-2.0
#include "runtime/failure.hpp"

#include <utility>

namespace sluice::runtime {
namespace {

void poison_word(const backends::Signal& word) noexcept {
  if (word.word->value.load(std::memory_order_relaxed) < base::kPoison)
    base::raise(*word.word, base::kPoison, *word.parking);
}

}  // namespace

void Failure::poisons(const backends::Signal& word) {
  const std::lock_guard lock(mutex_);
  words_.push_back(word);
  if (first_) poison_word(word);
}

bool Failure::record(const Error& error) noexcept {
  const std::lock_guard lock(mutex_);
  if (first_) return false;
  first_.emplace(error);
  return true;
}

void Failure::poison() const noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& word : words_) poison_word(word);
}

std::optional<Error> Failure::get() const {
  const std::lock_guard lock(mutex_);
  return first_;
}

void Failure::raise() const {
  const std::lock_guard lock(mutex_);
  throw Error(*first_);
}

void Failures::check() {
  if (unthrown_count_.load(std::memory_order_acquire) == 0) return;
  std::unique_lock lock(mutex_);
  if (unthrown_.empty()) return;
  const Error oldest = std::move(unthrown_.front());
  unthrown_.pop_front();
  unthrown_count_.store(unthrown_.size(), std::memory_order_release);
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
