// SPDX-License-Identifier: Apache-2.0
#include "runtime/counter.hpp"

#include <cstddef>
#include <new>
#include <string>
#include <utility>

namespace sluice::runtime {
namespace {

constexpr std::size_t kEach = sizeof(base::Progress);

}  // namespace

CounterWords::CounterWords(std::uint32_t counters) {
  if (counters == 0) return;
  memory_ = device::allocate_words(counters * kEach);
  for (std::uint32_t i = 0; i < counters; ++i) {
    std::byte* const at = memory_.extent().data + i * kEach;
    auto* const progress = new (at) base::Progress;
    progress->parking.after_common = static_cast<std::uint32_t>(
        (memory_.extent().offset() + i * kEach + offsetof(base::Progress, parking)) % device::kWordsBytes);
  }
}

CounterEnd::CounterEnd(std::shared_ptr<const Services> services, Opening what, const backends::Signal& word)
    : ChannelEnd(std::move(services), std::move(what), word) {}

std::uint64_t CounterEnd::word_for(std::uint64_t count) const {
  const std::uint64_t base = base_.load(std::memory_order_relaxed);
  if (count < base::kPoison - base) return base + count;
  throw error(Code::bad_argument, epoch() + 1, "a count of " + std::to_string(count) + " is never reached");
}

/// The word, with what has arrived and is raised in a turn of the engine.
std::uint64_t CounterEnd::raised_by_now() {
  find_helper();
  if (helper() != nullptr) helper()->look();
  return raised();
}

std::uint64_t CounterEnd::word_after(std::uint64_t count) {
  const std::uint64_t now = raised_by_now();
  check();
  if (count < base::kPoison - now) return now + count;
  throw error(Code::bad_argument, epoch() + 1, "a count of " + std::to_string(count) + " is never reached");
}

void CounterEnd::wait(Stream stream, std::uint64_t count) {
  const std::uint64_t at_least = word_for(count);
  const std::uint64_t epoch = begin();
  if (at_least > awaited_.load(std::memory_order_relaxed)) awaited_.store(at_least, std::memory_order_relaxed);
  issue(
      stream,
      [self = owner_of_work(), at_least, epoch](device::Lane lane) {
        auto& counter = static_cast<CounterEnd&>(*self);
        const backends::Signal& word = counter.word_;
        counter.fail_if_stopped(lane);
        device::wait(lane, {word.word, at_least, word.parking, epoch, "wait for a counter"}, counter,
                     counter.services().engine.helper());
        counter.report_failure(lane);
        counter.count_wait(lane);
      },
      [this, stream] {
        given_ = this->epoch() - refused_;
        if (!gpu_use()->raise_behind(stream, done, given_)) ++refused_;
      });
  if (stream.kind() != Stream::Kind::host) check();
}

/// Host streams may complete waits in any order.
void CounterEnd::count_wait(device::Lane lane) {
  if (lane.gpu != nullptr) return lane.gpu->write(done, ++given_);
  base::add_one(done, done_parking);
}

bool CounterEnd::wait_for(std::uint64_t count, Timeout timeout) {
  check_free();
  check();
  const std::uint64_t at_least = word_for(count);
  find_helper();
  const auto ready = [&] { return raised() >= at_least || failed(); };
  base::Limit limit(timeout);
  const bool in_time = timeout <= Timeout::zero() ? look(ready) : await_in_host(*word_.parking, ready, limit, "waits");
  check();
  return in_time;
}

std::uint64_t CounterEnd::count() {
  check_free();
  check();
  const std::uint64_t value = raised_by_now();
  check();
  return value - base_.load(std::memory_order_relaxed);
}

std::uint64_t CounterEnd::take() {
  const std::uint64_t so_far = count();
  base_.store(base_.load(std::memory_order_relaxed) + so_far, std::memory_order_relaxed);
  return so_far;
}

bool CounterEnd::passed() const noexcept {
  return completed() >= epochs_.begun() || (gpu_use() != nullptr && gpu_use()->lost());
}

std::uint64_t CounterEnd::waits_for() const noexcept {
  return completed() < epoch() && raised() < awaited_.load(std::memory_order_relaxed) ? completed() + 1 : 0;
}

std::string CounterEnd::state() const {
  const std::uint64_t value = raised();
  return "enqueued " + std::to_string(epoch()) + " waits, completed " + std::to_string(completed()) + ", counted " +
         (value >= base::kPoison ? "poison" : std::to_string(value - base_.load(std::memory_order_relaxed)));
}

}  // namespace sluice::runtime
