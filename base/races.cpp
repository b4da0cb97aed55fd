// SPDX-License-Identifier: Apache-2.0
#include "base/races.hpp"

#ifdef SLUICE_TELLS_OF_RACES

#include <sanitizer/tsan_interface.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <string>
#include <utility>

// Functions of ThreadSanitizer's runtime that none of its headers declares.
extern "C" {
void __tsan_func_entry(void* pc);
void __tsan_func_exit();
void __tsan_read_range(void* data, unsigned long bytes);
void __tsan_write_range(void* data, unsigned long bytes);
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}

// A function whose calls, loads and stores ThreadSanitizer does not see. clang's no_sanitize still tells of calls.
#if defined(__clang__)
#define SLUICE_UNSEEN __attribute__((disable_sanitizer_instrumentation, noinline))
#else
#define SLUICE_UNSEEN __attribute__((no_sanitize_thread, noinline))
#endif

namespace sluice::base::races {

namespace {

constexpr unsigned kFibers = 32;
std::atomic<unsigned> open_ends{0};

/// Stands for the bytes. Not the word itself: the thread that raises it for a NIC is ordered behind what the NIC is
/// not.
SLUICE_UNSEEN void* beside(void* signal) noexcept { return static_cast<char*>(signal) + 1; }

void* mutable_of(const void* at) noexcept { return const_cast<void*>(at); }  // as the interface wants it

/// Puts a call from `from` on the stack that reports show.
SLUICE_UNSEEN void enter(const void* from) noexcept {
  if (from != nullptr) __tsan_func_entry(const_cast<void*>(from));
}
SLUICE_UNSEEN void leave(const void* from) noexcept {
  if (from != nullptr) __tsan_func_exit();
}

}  // namespace

// Out of line, and called by their name in reports.
[[gnu::noinline]] void put_reads(const void* data, std::size_t bytes) noexcept {
  __tsan_read_range(mutable_of(data), bytes);
}
[[gnu::noinline]] void arrival_writes(void* data, std::size_t bytes) noexcept { __tsan_write_range(data, bytes); }

SLUICE_UNSEEN Item::Running::Running(const Item& item) noexcept : before_(place) {
  place = item.place_;
  enter(item.place_);
}
SLUICE_UNSEEN Item::Running::~Running() {
  leave(place);
  place = before_;
}

NoOrder::NoOrder() noexcept { AnnotateIgnoreSyncBegin(__FILE__, __LINE__); }
NoOrder::~NoOrder() { AnnotateIgnoreSyncEnd(__FILE__, __LINE__); }

Unseen::Unseen() noexcept {
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}
Unseen::~Unseen() {
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}

void put_wrote(void* signal) noexcept { __tsan_release(beside(signal)); }

// ---- Slots.

struct Slots::Fiber {
  std::atomic<void*> made{nullptr};
  std::atomic_flag owned;
};

struct Slots::Access {
  const void* read = nullptr;
  void* written = nullptr;
  std::size_t bytes = 0;
  void* signal = nullptr;

  /// Unseen, because the fiber is on the stack of this thread.
  static void tell(void* fiber, Slot& slot, const Access& what) noexcept;
};

SLUICE_UNSEEN void Slots::Access::tell(void* fiber, Slot& slot, const Access& what) noexcept {
  void* const thread = __tsan_get_current_fiber();
  const void* const from = place;
  __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync);
  __tsan_acquire(&slot.given);
  if (what.signal != nullptr) __tsan_acquire(beside(what.signal));
  enter(from);
  if (what.read != nullptr) put_reads(what.read, what.bytes);
  if (what.written != nullptr) arrival_writes(what.written, what.bytes);
  leave(from);
  __tsan_release(&slot.accessed);
  __tsan_switch_to_fiber(thread, __tsan_switch_to_fiber_no_sync);
}

Slots::Slots(int rank, int peer, std::uint64_t tag, bool sends, std::uint64_t depth)
    : rank_(rank), peer_(peer), tag_(tag), depth_(depth), sends_(sends), slots_(new Slot[depth]) {
  open_ends.fetch_add(1, std::memory_order_relaxed);
  for (std::uint64_t i = 0; i < depth; ++i) given(i);
}

Slots::~Slots() {
  all_taken_back();
  open_ends.fetch_sub(1, std::memory_order_relaxed);
  if (fiber_ != nullptr) fiber_->owned.clear(std::memory_order_relaxed);
  delete[] slots_;
}

/// Null: others have them all.
Slots::Fiber* Slots::own_fiber() const {
  static Fiber all[kFibers];
  const auto mine =
      std::ranges::find_if(all, [](Fiber& one) { return !one.owned.test_and_set(std::memory_order_relaxed); });
  if (mine == std::end(all)) return nullptr;
  if (mine->made.load(std::memory_order_relaxed) == nullptr)
    mine->made.store(__tsan_create_fiber(0), std::memory_order_relaxed);
  const std::string name = "rank " + std::to_string(rank_) + (sends_ ? ": puts to rank " : ": arrivals from rank ") +
                           std::to_string(peer_) + ", tag " + std::to_string(tag_);
  __tsan_set_fiber_name(mine->made.load(std::memory_order_relaxed), name.c_str());
  return mine;
}

void Slots::tell(std::uint64_t slot, const Access& access) noexcept {
  if (open_ends.load(std::memory_order_relaxed) > kFibers) return;
  // Two threads at once are a mistake of the program's that is not found here; and a lock would order them.
  if (busy_.test_and_set(std::memory_order_relaxed)) return;
  if (!std::exchange(asked_, true)) fiber_ = own_fiber();
  if (fiber_ != nullptr) Access::tell(fiber_->made.load(std::memory_order_relaxed), slots_[slot], access);
  busy_.clear(std::memory_order_relaxed);
}

void Slots::reads(std::uint64_t slot, const void* data, std::size_t bytes) noexcept {
  given(slot);
  tell(slot, {.read = data, .bytes = bytes});
}

void Slots::arrives(std::uint64_t slot, void* data, std::size_t bytes, void* signal) noexcept {
  tell(slot, {.written = data, .bytes = bytes, .signal = signal});
  taken_back(slot);
}

void Slots::given(std::uint64_t slot) noexcept { __tsan_release(&slots_[slot].given); }
void Slots::taken_back(std::uint64_t slot) noexcept { __tsan_acquire(&slots_[slot].accessed); }

void Slots::all_taken_back() noexcept {
  for (std::uint64_t i = 0; i < depth_; ++i) taken_back(i);
}

}  // namespace sluice::base::races

#endif
