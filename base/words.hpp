// SPDX-License-Identifier: Apache-2.0
// Words, by which streams, peers, NICs and the engine signal each other: raising a word, and waiting for one on a CPU.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace sluice::base {

using Clock = std::chrono::steady_clock;

/// A 64-bit count that only grows, has one writer, and is only compared with >=. May lie in memory that other processes
/// map. The counters of a window have many writers, which `add`.
struct Word {
  std::atomic<std::uint64_t> value{0};
};
static_assert(sizeof(Word) == 8 && std::atomic<std::uint64_t>::is_always_lock_free);

/// Stored (never added) into a word to release all waits for it. Above every epoch; positive in signed comparisons.
inline constexpr std::uint64_t kPoison = std::uint64_t{1} << 62;

/// A place for threads to sleep until a word beside it is raised. It lies in the memory of the words, so that a raiser
/// in another process finds it. It has a cache line of its own, which stays in the raiser's cache while no thread
/// sleeps, so that raising transfers no more lines.
struct alignas(64) Parking {
  std::atomic<std::uint32_t> sleepers{0};
  std::atomic<std::uint32_t> changes{0};
  /// 1 if the raiser, a GPU, wakes no thread: sleepers look at the word now and then.
  std::atomic<std::uint32_t> silent{0};
  /// How many bytes before this place, in the same memory, the common one lies, where threads sleep for words of
  /// several places at once (`park_at_any`). 0: there is none. Set before a raiser knows this place.
  std::uint32_t after_common = 0;

  /// Announces a raiser that wakes no thread. A thread that goes to sleep meanwhile either sees `silent` or, because
  /// it counts itself and loads `changes` first, is woken.
  void silence() noexcept {
    if (silent.exchange(1, std::memory_order_seq_cst) == 0) wake_sleepers();
  }

  /// Wakes all sleepers. Call after raising a word.
  void wake() noexcept {
    // No fence: it would make every put wait for its own store to reach the other core. The processor may load
    // `sleepers` before the word's store is visible to others, but that store is on its way and stays so for far less
    // than a sleeper's first nap, after which the sleeper looks at the word once more (test: words.no_wake_is_lost). So
    // either this load sees the sleeper, or the sleeper sees the word. The bound on stores is what Morrison and Afek
    // call temporally bounded TSO (ASPLOS 2015).
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_relaxed) != 0) wake_sleepers();
  }

  /// Null: there is none.
  Parking* common() noexcept {
    return after_common == 0 ? nullptr : reinterpret_cast<Parking*>(reinterpret_cast<std::byte*>(this) - after_common);
  }

 private:
  [[gnu::cold]] void wake_sleepers() noexcept;
};

/// A full fence where the other side, in this process, runs `heavy_fence`: free if the kernel has membarrier.
inline std::atomic<bool> kernel_has_fences{false};
[[gnu::cold]] void full_fence() noexcept;
inline void light_fence() noexcept {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (!kernel_has_fences.load(std::memory_order_relaxed)) full_fence();
}

/// Makes every thread of this process pass a full fence.
void heavy_fence() noexcept;

/// Earlier stores of this thread to mapped memory are visible before later ones. On aarch64, the stores of a put to a
/// window could otherwise pass those of an earlier one.
inline void order_stores() noexcept {
#if defined(__x86_64__) || defined(__SANITIZE_THREAD__)  // which keep the order; which knows no fences
  std::atomic_signal_fence(std::memory_order_release);
#else
  std::atomic_thread_fence(std::memory_order_release);
#endif
}

/// Once a process, before `light_fence` is used. Idempotent, any thread.
void prepare_fences() noexcept;

/// Raises `word` and wakes the threads that sleep for it. A reader that sees the value sees all earlier writes.
inline void raise(Word& word, std::uint64_t value, Parking& parking) noexcept {
  word.value.store(value, std::memory_order_release);
  parking.wake();
}

/// Like `raise` by one, for a word with several writers.
inline void add_one(Word& word, Parking& parking) noexcept {
  word.value.fetch_add(1, std::memory_order_acq_rel);
  parking.wake();
}

/// A word with its own parking. Its memory is never used for anything else: the owner may see the word raised and give
/// it back while the raiser still looks for sleepers. Whole pages hold nothing else, so that a GPU can be given access
/// to them.
struct Progress {
  Word word;
  Parking parking;

  static constexpr std::size_t kPage = 4096;
};
static_assert(Progress::kPage % sizeof(Progress) == 0);
Progress& take_progress();
void give_back(Progress& progress) noexcept;

/// Returns the page of the Progress that has this word.
inline void* page_of(Word& word) noexcept {
  return reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(&word) & ~(Progress::kPage - 1));
}

inline bool reached(const Word& word, std::uint64_t at_least) noexcept {
  return word.value.load(std::memory_order_acquire) >= at_least;
}

inline void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Time that a wait yields before it sleeps: waking takes 50 us, at most a twentieth of the wait.
inline constexpr auto kYielding = std::chrono::milliseconds(1);

/// Spins, then yields, until `deadline` or for about 1 ms. Returns true once `ready()`, false when it is time to sleep.
bool spin_then_yield(bool (*ready)(void*), void* argument, Clock::time_point deadline) noexcept;

/// Sleeps until `parking` is woken, `ready()` holds, or `deadline`. May return early.
void park(Parking& parking, bool (*ready)(void*), void* argument, Clock::time_point deadline) noexcept;

/// Like `park`, for words of several places: sleeps at the place that all have in common, which whoever wakes one of
/// them wakes too. If they have none in common, sleeps for 0.1 ms at most.
void park_at_any(std::span<Parking* const> places, bool (*ready)(void*), void* argument,
                 Clock::time_point deadline) noexcept;
inline void park(std::span<Parking* const> places, bool (*ready)(void*), void* argument,
                 Clock::time_point deadline) noexcept {
  park_at_any(places, ready, argument, deadline);
}

/// For waits without a template: `ready` points to a Ready.
template <class Ready>
bool is_ready(void* ready) {
  return static_cast<bool>((*static_cast<Ready*>(ready))());
}

template <class Ready>
bool spin_then_yield(Ready& ready, Clock::time_point deadline) noexcept {
  return spin_then_yield(is_ready<Ready>, &ready, deadline);
}

/// Sleeps until `ready()`, or until `deadline`. Returns which it was. `parking`: a Parking, or a span of several.
template <class Place, class Ready>
bool park_until(Place&& parking, Ready& ready, Clock::time_point deadline) {
  while (!ready()) {
    if (Clock::now() >= deadline) return false;
    park(parking, is_ready<Ready>, &ready, deadline);
  }
  return true;
}

/// The usual wait: spins briefly, yields, then sleeps, so that many ranks on few cores make progress and an idle one
/// uses no CPU. Returns whether `ready()` held before `deadline`. `parking`: a Parking, or a span of several.
template <class Place, class Ready>
bool wait_until(Place&& parking, Ready ready, Clock::time_point deadline = Clock::time_point::max()) {
  return spin_then_yield(ready, deadline) || park_until(parking, ready, deadline);
}

}  // namespace sluice::base
