// SPDX-License-Identifier: Apache-2.0
// The counters of a window, for which their owner waits.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "backends/access.hpp"
#include "runtime/channel.hpp"

namespace sluice::runtime {

/// The words of all counters of a window, in memory that peers map.
class CounterWords {
 public:
  explicit CounterWords(std::uint32_t counters);

  const device::Extent& extent() const noexcept { return memory_.extent(); }
  backends::Counters all() const noexcept {
    return backends::counters_at(memory_.extent().data, memory_.extent().bytes);
  }
  backends::Signal signal(std::uint32_t counter) const noexcept {
    base::Progress& progress = all()[counter];
    return {&progress.word, &progress.parking, memory_.extent()};
  }

 private:
  device::Allocation memory_;
};

/// A counter, as an end without a peer: its verbs are waits. Its word has many writers and is never reset; what the
/// owner sees is how far the word has risen since `take`.
class CounterEnd final : public ChannelEnd {
 public:
  CounterEnd(std::shared_ptr<const Services> services, Opening what, const backends::Signal& word);

  /// For the registry, with its mutex: it works from now on.
  void begin_alone() { work_alone(); }
  /// A target that was to raise it has failed.
  void lose(Code code, const std::string& what, const std::shared_ptr<Cause>& cause) noexcept {
    record(code, what, false, cause);
  }

  // For the owner of the window.
  /// Later work on the stream runs only once the count is reached.
  void wait(Stream stream, std::uint64_t count);
  /// Blocks the host. False: the count was not reached in time.
  bool wait_for(std::uint64_t count, Timeout timeout);
  std::uint64_t count();
  /// Returns the count, which begins anew.
  std::uint64_t take();
  // For a host that waits for several ends.
  /// The word once it has counted `count` more accesses. @throws Error{Code::bad_argument} if it never has
  std::uint64_t word_after(std::uint64_t count);
  std::uint64_t raised() const noexcept { return word_.word->value.load(std::memory_order_acquire); }
  base::Parking& parking() const noexcept { return *word_.parking; }

  bool passed() const noexcept override;
  void refuse_enqueued() override {}
  backends::Key open_landing(backends::Link&, std::vector<backends::Signal>) override { return {}; }
  base::EndCounts counts() const noexcept override { return {epoch(), completed(), 0, 0}; }
  std::string state() const override;

 private:
  std::uint64_t waits_for() const noexcept override;
  std::pair<base::Lack, std::uint64_t> lacks(std::uint64_t) const noexcept override {
    return {base::Lack::count, awaited_.load(std::memory_order_relaxed) - base_.load(std::memory_order_relaxed)};
  }
  void reach_own(device::Driver&) override {}
  backends::AfterTurn poll() override { return backends::AfterTurn::nothing; }

  std::uint64_t word_for(std::uint64_t count) const;
  std::uint64_t raised_by_now();
  std::uint64_t completed() const noexcept { return done.value.load(std::memory_order_acquire) + refused_; }
  void count_wait(device::Lane lane);

  std::atomic<std::uint64_t> base_{0};     // the word at the last `take`
  std::atomic<std::uint64_t> awaited_{0};  // the highest word that a wait waits for
  std::uint64_t given_ = 0;                // waits that a GPU's stream was given
  std::atomic<std::uint64_t> refused_{0};  // waits that its driver refused
};

}  // namespace sluice::runtime
