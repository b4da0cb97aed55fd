// SPDX-License-Identifier: Apache-2.0
#include "base/words.hpp"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "base/fork.hpp"
#include "base/meanwhile.hpp"

namespace sluice::base {
namespace {

// Two ranks that run at the same time answer each other within the spin; a rank whose peer does not run must yield its
// core soon. Because the spin is longer than a hop, a pair that is on the cores together stays there (sluice-bench
// scale).
constexpr int kPlainSpins = 400;  // without `pause`, which takes 140 cycles on current cores: as much as a hop
constexpr int kPausedSpins = 64;  // about 3 us
// A yield that takes less has found no other thread for the core. It takes 0.2 to 0.8 us, in which a wait sees nothing.
constexpr auto kNobodyElse = std::chrono::microseconds(1);
constexpr auto kNap = std::chrono::milliseconds(1);
constexpr auto kSilentNap = std::chrono::microseconds(100);
constexpr auto kNapWithWork = std::chrono::microseconds(300);

thread_local constinit Meanwhile::Work* t_meanwhile = nullptr;

int membarrier(int command) noexcept { return static_cast<int>(syscall(SYS_membarrier, command, 0, 0)); }

void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* timeout) noexcept {
  // Not FUTEX_PRIVATE: the word may be in memory that other processes map.
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, timeout, nullptr, 0);
}

/// Returns when `word` differs from `seen`, at `deadline`, or early.
void sleep(std::atomic<std::uint32_t>& word, std::uint32_t seen, Clock::time_point deadline) noexcept {
  if (deadline == Clock::time_point::max()) return futex(word, FUTEX_WAIT, seen, nullptr);
  const auto left = std::max(deadline - Clock::now(), Clock::duration::zero());
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
  const timespec timeout{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
  futex(word, FUTEX_WAIT, seen, &timeout);
}

struct Pool {
  std::mutex mutex;
  std::vector<Progress*> free;
  std::byte* next_page = nullptr;
  std::size_t pages_left = 0;
};

OnePerProcess<Pool> g_pool;  // never destroyed: see Progress

/// The first call reserves a range of addresses that is enough for most programs. Not heap memory, because at its
/// addresses a GPU's driver may still have earlier pages of the user (device/reach).
void* fresh_page() {
  constexpr std::size_t kPages = 4096;
  if (g_pool->pages_left == 0) {
    const std::size_t bytes = kPages * Progress::kPage;
    void* const range =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) throw std::bad_alloc();
    madvise(range, bytes, MADV_NOHUGEPAGE);  // or the first word takes 2 MiB
    g_pool->next_page = static_cast<std::byte*>(range);
    g_pool->pages_left = kPages;
  }
  --g_pool->pages_left;
  return std::exchange(g_pool->next_page, g_pool->next_page + Progress::kPage);
}

}  // namespace

Meanwhile::Meanwhile(Work* work) noexcept : before_(std::exchange(t_meanwhile, work)) {}

Meanwhile::~Meanwhile() { t_meanwhile = before_; }

bool Meanwhile::run() noexcept {
  if (t_meanwhile == nullptr) return false;
  t_meanwhile();
  return true;
}

void prepare_fences() noexcept { kernel_has_fences.store(membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0); }

void full_fence() noexcept {
  static thread_local std::atomic<int> one{0};
  one.fetch_add(1, std::memory_order_seq_cst);  // a read-modify-write, not a fence: ThreadSanitizer knows it
}

void heavy_fence() noexcept {
  full_fence();
  if (kernel_has_fences.load()) membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

void Parking::wake_sleepers() noexcept {
  const auto wake_all_of = [](Parking& place) {
    place.changes.fetch_add(1, std::memory_order_release);
    futex(place.changes, FUTEX_WAKE, INT_MAX, nullptr);
  };
  wake_all_of(*this);
  // A thread that sleeps there counts itself there first, and here after that.
  static_cast<void>(sleepers.load(std::memory_order_acquire));  // not a fence, which ThreadSanitizer does not know
  Parking* const shared = common();
  if (shared != nullptr && shared->sleepers.load(std::memory_order_relaxed) != 0) wake_all_of(*shared);
}

Progress& take_progress() {
  const std::lock_guard lock(g_pool->mutex);
  auto& free = g_pool->free;
  if (free.empty()) {
    constexpr std::size_t kAtOnce = Progress::kPage / sizeof(Progress);
    free.reserve(free.capacity() + kAtOnce);  // room for all, so that giving back never allocates
    auto* const fresh = static_cast<Progress*>(fresh_page());
    for (std::size_t i = 0; i < kAtOnce; ++i) free.push_back(new (fresh + i) Progress);
  }
  Progress& progress = *free.back();
  free.pop_back();
  progress.word.value.store(0, std::memory_order_relaxed);
  progress.parking.silent.store(0, std::memory_order_relaxed);
  return progress;
}

void give_back(Progress& progress) noexcept {
  const std::lock_guard lock(g_pool->mutex);
  g_pool->free.push_back(&progress);
}

namespace {

bool spin_with_pauses(bool (*ready)(void*), void* argument) noexcept {
  for (int i = 0; i < kPausedSpins; ++i) {
    pause();
    if (ready(argument)) return true;
  }
  return false;
}

}  // namespace

bool spin_then_yield(bool (*ready)(void*), void* argument, Clock::time_point deadline) noexcept {
  for (int i = 0; i < kPlainSpins; ++i) {
    if (ready(argument)) return true;
  }
  if (spin_with_pauses(ready, argument)) return true;
  auto before = Clock::now();
  const auto end = std::min(deadline, before + kYielding);
  for (;;) {
    sched_yield();
    const auto now = Clock::now();
    if (ready(argument)) return true;
    if (now >= end) return false;
    static_cast<void>(Meanwhile::run());
    if (now - before < kNobodyElse && spin_with_pauses(ready, argument)) return true;
    before = Clock::now();
  }
}

namespace {

/// The deadline of a sleep, before which a thread with work wakes to do it again.
Clock::time_point with_work(Clock::time_point deadline) noexcept {
  return Meanwhile::run() ? std::min(deadline, Clock::now() + kNapWithWork) : deadline;
}

/// Two sleeps: a raiser that did not see this sleeper makes its word visible long before the nap ends (Parking::wake).
void sleep_twice(Parking& parking, std::uint32_t seen, bool (*ready)(void*), void* argument,
                 Clock::time_point deadline) noexcept {
  if (!ready(argument)) sleep(parking.changes, seen, std::min(deadline, Clock::now() + kNap));
  if (!ready(argument)) sleep(parking.changes, seen, deadline);
}

bool is_silent(const Parking* place) noexcept { return place->silent.load(std::memory_order_seq_cst) != 0; }

/// The place that all have in common; null: there is none.
Parking* common_of(std::span<Parking* const> places) noexcept {
  Parking* const first = places.front()->common();
  return std::ranges::all_of(places, [&](Parking* place) { return place->common() == first; }) ? first : nullptr;
}

}  // namespace

void park_at_any(std::span<Parking* const> places, bool (*ready)(void*), void* argument,
                 Clock::time_point deadline) noexcept {
  deadline = with_work(deadline);
  Parking* const common = common_of(places);
  Parking& bed = common == nullptr ? *places.front() : *common;
  bed.sleepers.fetch_add(1, std::memory_order_seq_cst);  // first: see wake_sleepers
  for (Parking* place : places) place->sleepers.fetch_add(1, std::memory_order_seq_cst);
  const std::uint32_t seen = bed.changes.load(std::memory_order_acquire);
  const bool silent = std::ranges::any_of(places, is_silent);  // last: see Parking::silence
  if (common == nullptr || silent) deadline = std::min(deadline, Clock::now() + kSilentNap);
  sleep_twice(bed, seen, ready, argument, deadline);
  for (Parking* place : places) place->sleepers.fetch_sub(1, std::memory_order_seq_cst);
  bed.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

void park(Parking& parking, bool (*ready)(void*), void* argument, Clock::time_point deadline) noexcept {
  deadline = with_work(deadline);
  parking.sleepers.fetch_add(1, std::memory_order_seq_cst);
  const std::uint32_t seen = parking.changes.load(std::memory_order_acquire);
  if (is_silent(&parking)) deadline = std::min(deadline, Clock::now() + kSilentNap);
  sleep_twice(parking, seen, ready, argument, deadline);
  parking.sleepers.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace sluice::base
