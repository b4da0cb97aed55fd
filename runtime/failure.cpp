// SPDX-License-Identifier: Apache-2.0
#include "runtime/failure.hpp"

#include <string_view>
#include <utility>

namespace sluice::runtime {
namespace {

void poison_word(const backends::Signal& word) noexcept {
  if (word.word->value.load(std::memory_order_relaxed) < base::kPoison)
    base::raise(*word.word, base::kPoison, *word.parking);
}

/// Where the reason begins in "rank 1 reports: REASON".
std::size_t after_reporter(const std::string& what) {
  constexpr std::string_view kReports = " reports: ";
  const std::size_t at = what.find(kReports);
  return at == std::string::npos || !what.starts_with("rank ") ? 0 : at + kReports.size();
}

}  // namespace

void EndFailure::poisons(const backends::Signal& word) {
  const std::lock_guard lock(mutex_);
  words_.push_back(word);
  if (first_ != nullptr) poison_word(word);
}

bool EndFailure::record(SharedFailure failure) noexcept {
  const std::lock_guard lock(mutex_);
  if (first_ != nullptr) return false;
  first_ = std::move(failure);
  return true;
}

void EndFailure::poison() const noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& word : words_) poison_word(word);
}

SharedFailure EndFailure::get() const {
  const std::lock_guard lock(mutex_);
  return first_;
}

void EndFailure::raise() const { get()->raise(); }

std::shared_ptr<Cause> Failures::cause_of(Code code, const std::string& what, const Opening& of) {
  const bool of_many = code == Code::peer_lost || code == Code::aborted;
  if (!of_many && of.name.empty()) return std::make_shared<Cause>();
  const std::string peer = std::to_string(of.key.world_peer);
  std::string key = peer + " " + of.name;
  if (code == Code::peer_lost) key = peer;
  if (code == Code::aborted) key = what.substr(after_reporter(what));  // by whichever rank it is reported
  const std::lock_guard lock(mutex_);
  auto& cause = causes_[{code, key}];
  if (cause == nullptr) cause = std::make_shared<Cause>();
  return cause;
}

void Failures::forget_told() {
  const std::lock_guard lock(mutex_);
  std::erase_if(causes_, [](const auto& one) { return one.first.first != Code::peer_lost && one.second->told; });
}

void Failures::check() {
  if (!any_unthrown_.load(std::memory_order_acquire)) return;
  std::unique_lock lock(mutex_);
  while (!unthrown_.empty()) {
    const SharedFailure oldest = std::move(unthrown_.front());
    unthrown_.pop_front();
    any_unthrown_.store(!unthrown_.empty(), std::memory_order_release);
    if (!oldest->take()) continue;  // `synchronize` has thrown it
    lock.unlock();
    oldest->raise();
  }
}

std::vector<SharedFailure> Failures::take_untold() {
  const std::lock_guard lock(mutex_);
  std::vector<SharedFailure> first_ones;
  for (const SharedFailure& failure : std::exchange(untold_, {})) {
    if (!failure->cause()->told.exchange(true)) first_ones.push_back(failure);
  }
  return first_ones;
}

void Failures::notice(FailureNotice notice) noexcept {
  const std::lock_guard lock(mutex_);
  notices_.push_back(std::move(notice));
}

std::vector<FailureNotice> Failures::take_notices() {
  const std::lock_guard lock(mutex_);
  return std::exchange(notices_, {});
}

}  // namespace sluice::runtime
