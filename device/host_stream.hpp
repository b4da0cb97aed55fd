// SPDX-License-Identifier: Apache-2.0
// A stream that is a CPU thread: a bounded queue of work, many producers, one consumer.
#pragma once

#include <sluice/error.hpp>
#include <sluice/stream.hpp>

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <limits>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fork.hpp"
#include "base/limit.hpp"
#include "base/races.hpp"
#include "base/trace.hpp"
#include "base/words.hpp"
#include "device/failure.hpp"

namespace sluice {

struct HostStream::Impl {
  /// @throws Error{Code::bad_argument, Code::out_of_resources}
  explicit Impl(Options options);
  ~Impl();

  /// Any thread. Blocks while the queue is full, except from inside the stream.
  void push(Work work) { append(work, Whose::users); }

  /// Enqueues work of the library itself, which any thread may run: a host that synchronizes runs it at once, which
  /// saves two changes of thread a step. `puts`: the work is a put.
  template <class F>
  void enqueue(F work, bool puts = false) {
    Work item(std::move(work));
    append(item, puts ? Whose::own_put : Whose::own);
  }

  /// Runs the library's work in the calling thread if everything before it has run, `is_brief()`, and the stream's
  /// thread dozes, so that a host would run it later anyway. Returns false if it has not run. `is_brief` is called in
  /// the order of the stream, and returns whether the work is short and waits for nothing.
  template <class IsBrief, class F>
  bool run_now(IsBrief is_brief, F work) {
    const bool may = state_.load(std::memory_order_relaxed) == State::dozing && is_empty() && !base::races::kOn;
    if (!may || !take_over()) return false;
    const RunsHere here(*this);
    if (!is_empty() || !late_.empty() || !is_brief()) return false;
    const base::trace::OnTrack track(track_);
    perform(work);
    count_caught_up();
    return true;
  }

  /// What ended the work of the stream.
  struct Stop {
    device::SharedFailure failure;
    std::exception_ptr thrown;  ///< by a callable; null: a wait has failed
    /// For the channels behind.
    std::string why() const { return "its host stream had stopped: " + std::string(failure->error().what()); }
  };

  /// See HostStream.
  void synchronize(Timeout timeout);
  void raise_at(std::shared_ptr<HostEvent::Impl> event);
  void wait_for(std::shared_ptr<HostEvent::Impl> event);
  struct Turns;
  void raise_at(std::shared_ptr<Turns> turns, std::uint64_t turn);
  void wait_for(std::shared_ptr<Turns> turns, std::uint64_t turn);

  /// A credit that may leave between the bytes and the signal of a put.
  struct Credit {
    void (*give)(Impl* stream, void* end, std::uint64_t epoch) = nullptr;  ///< null: no credit
    void* end = nullptr;
    std::uint64_t epoch = 0;
    const void* rank = nullptr;  ///< to compare
    int peer = 0;
  };
  // From inside.
  /// The item that runs gives a credit, and may hold it back: the item behind it is there, and is a put. False: the
  /// credit leaves now, or one has left just before, which has fetched the line.
  bool may_hold_back() noexcept {
    constexpr std::uint64_t kJustBefore = 2;  // with a wait in between
    const auto here = head_.load(std::memory_order_relaxed);
    if (here - gave_at_ <= kJustBefore || !is_full(here + 1) || cell(here + 1).whose != Whose::own_put ||
        !late_.empty()) {
      gave_at_ = here;
      return false;
    }
    return true;
  }
  /// Gives the credit when the next item, a put, lets it go, or behind that item.
  void hold_back(const Credit& credit) noexcept {
    let_go();  // an item may give several
    held_back_ = credit;
    held_behind_ = head_.load(std::memory_order_relaxed);
  }
  const Credit& held_back() const noexcept { return held_back_; }
  void let_go() noexcept {
    if (held_back_.give != nullptr) [[unlikely]]
      give_held_back();
  }

  /// True if the calling thread runs this stream now.
  bool inside() const noexcept { return current == this; }

  /// False in a child of fork, where no thread runs the stream.
  bool here() const noexcept { return origin_.here(); }

  /// True once the destructor has begun: parked waits must end.
  bool ending() const noexcept { return ending_.load(std::memory_order_acquire); }

  Timeout timeout() const noexcept { return timeout_; }

  /// "stream 'interior'", or "host stream 2".
  const std::string& name() const noexcept { return name_; }

  /// Reports that a verb on this stream has met a failure of its channel. From inside.
  /// @param waits  the verb is one that waits, whose failure may stop the stream
  void met(const device::SharedFailure& failure, bool waits) noexcept;
  /// True if a wait has failed since the last `synchronize`. Any thread.
  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  /// Null: the stream has not stopped. From inside.
  const Stop* stopped_by() const noexcept { return stop_.failure == nullptr ? nullptr : &stop_; }

  /// A wait inside the stream is about to sleep on `parking`, where the destructor wakes it; nullptr: awake again.
  void parked_at(base::Parking* parking) noexcept;

 private:
  /// Owner of an item's work, and whether it is a put. A user's callables run in the stream's own thread,
  /// the library's work in any thread that is at hand.
  enum class Whose : std::uint8_t { own_put, own, users };

  /// Dozing, the thread is woken for users' work only: it trusts hosts that synchronize to run the rest.
  enum class State : std::uint8_t { awake, dozing, asleep };
  static constexpr std::uint32_t kEnoughToDoze = 4;

  /// One place of the ring, for all positions that are equal modulo the number of cells. Zeroed memory is an empty
  /// ring.
  struct Cell {
    std::uint64_t filled;  ///< one more than the last position whose item was put here
    Whose whose;
    [[no_unique_address]] base::races::Item item;
    alignas(Work) std::byte work[sizeof(Work)];
  };

  /// An item that was pushed from inside while the ring was full. It runs before the item at position `before`.
  struct Late {
    std::uint64_t before;
    Whose whose;
    [[no_unique_address]] base::races::Item item;
    Work work;
  };
  static constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

  static thread_local Impl* current;

  Cell& cell(std::uint64_t position) const noexcept { return cells_[position & mask_]; }
  static std::atomic_ref<std::uint64_t> filled(Cell& cell) noexcept { return std::atomic_ref(cell.filled); }
  static Work& work(Cell& cell) noexcept { return *std::launder(reinterpret_cast<Work*>(cell.work)); }
  std::size_t ring_bytes() const noexcept { return (mask_ + 1) * sizeof(Cell); }
  bool is_free(std::uint64_t position) noexcept;
  bool is_full(std::uint64_t position) const noexcept;

  // Producers.
  std::uint64_t append(Work& work, Whose whose);
  std::uint64_t append_inside(Work& work, Whose whose);
  /// Nothing: the ring is full.
  std::optional<std::uint64_t> append_if_free(Work& work, Whose whose) noexcept;
  void fill(std::uint64_t position, Work& work, Whose whose) noexcept;
  void wait_for_room(std::uint64_t position) noexcept;
  std::uint64_t batch() const noexcept { return mask_ / 16 + 1; }  // a power of two

  // Functions of the one thread that runs the stream.
  bool take_over() noexcept { return !taken_.exchange(true, std::memory_order_acquire); }
  void hand_back() noexcept {
    let_go();
    if ((head_.load(std::memory_order_relaxed) & mask_) >= far()) rewind();
    taken_.store(false, std::memory_order_release);
  }
  /// An empty ring goes on with its first cells. So those of a short queue stay in the cache, however large the ring is
  /// (sluice-bench stream: of 0.85 us that a synchronised step of 8 bytes took, cells in no cache were 0.35).
  void rewind() noexcept;
  /// The ring is rewound when its next cell is so far from the first one. Positions grow about 1024 times as fast as
  /// items at most, which never exhausts them.
  std::uint64_t far() const noexcept { return std::max<std::uint64_t>(64, mask_ / 1024); }
  bool run_next(Whose most) noexcept;
  [[gnu::noinline]] void give_held_back() noexcept;
  bool run_late(Whose most) noexcept;
  void run(Work& work, Whose whose) noexcept;
  template <class F>
  void perform(F& work) noexcept {
    try {
      work();
    } catch (...) {
      stop(std::current_exception());
    }
  }

  /// The calling thread, which has taken the stream over, runs it as long as this lives.
  class RunsHere {
   public:
    explicit RunsHere(Impl& stream) noexcept : stream_(stream), outer_(std::exchange(current, &stream)) {}
    RunsHere(const RunsHere&) = delete;
    RunsHere& operator=(const RunsHere&) = delete;
    ~RunsHere() {
      current = outer_;
      stream_.hand_back();
      // Work that was enqueued meanwhile is for the stream's thread, which sleeps if it has found the stream taken.
      base::light_fence();
      if (stream_.state_.load(std::memory_order_relaxed) == State::asleep && stream_.has_work()) stream_.wake_up();
    }

   private:
    Impl& stream_;
    Impl* const outer_;
  };
  /// Every position of the ring that was claimed has run.
  bool is_empty() const noexcept {
    return head_.load(std::memory_order_relaxed) == tail_.load(std::memory_order_relaxed);
  }
  void count_caught_up() noexcept {
    caught_up_.store(caught_up_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  // The stream's own thread.
  void start_thread(int cpu);
  void serve();
  bool has_work() const noexcept;
  bool not_needed() const noexcept { return caught_up_.load(std::memory_order_relaxed) >= kEnoughToDoze; }
  void wait_for_work();
  void doze();
  template <class Ready>
  bool sleep(State how, base::Clock::time_point until, Ready ready);
  void call(State at_least) {
    const base::races::NoOrder waking;
    base::light_fence();
    if (state_.load(std::memory_order_relaxed) >= at_least) wake_up();
  }
  void wake_up();

  // Synchronizing.
  bool catch_up(std::uint64_t target, Stop& stop);
  bool run_own(std::uint64_t target) noexcept;
  struct Marker;
  Stop wait_for_marker(Timeout timeout);
  Work work_of(const std::shared_ptr<Marker>& marker);
  bool pass(const std::shared_ptr<Marker>& marker, base::Limit& limit);
  void go_on(Stop& stopped_by) noexcept;
  /// Sleeps until `reached()`. @throws Error if the stream ends, or has waited for its timeout
  template <class Reached>
  void await_other(base::Parking& parking, Reached reached);
  /// Another stream had stopped in front of what this one waits for.
  void stop_as(const Stop& other) noexcept;
  device::SharedFailure next_met();
  void stop(std::exception_ptr thrown) noexcept;
  void tell_of_stop() noexcept;

  const base::Origin origin_;
  Cell* cells_ = nullptr;
  std::uint64_t mask_ = 0;
  Timeout timeout_;
  bool stops_;  // after a failed wait
  const std::string name_;
  const device::SharedFailure without_text_;       // of a callable that has thrown when no memory was left
  base::trace::Track track_ = base::trace::kNone;  // in the timeline
  pthread_t thread_{};
  std::atomic<bool> ending_{false};

  alignas(64) std::atomic<std::uint64_t> tail_{0};  // positions claimed
  std::atomic<std::uint64_t> known_head_{0};        // `head_` as producers saw it last: its line seldom travels

  alignas(64) std::atomic<bool> taken_{false};  // some thread runs the stream; the next seven are its own to write
  std::atomic<std::uint64_t> head_{0};          // the position to run next
  std::atomic<std::uint64_t> late_before_{kNever};
  Credit held_back_;
  std::uint64_t held_behind_ = 0;       // the position of the item that holds it back
  std::uint64_t gave_at_ = kNever / 2;  // the position of the item that has not held its credit back last
  std::deque<Late> late_;
  Stop stop_;

  alignas(64) std::atomic<State> state_{State::awake};  // what the stream's thread does
  std::atomic<std::uint32_t> caught_up_{0};             // times that a host ran everything, since the thread went idle

  base::Parking room_;     // where producers wait for room
  base::Parking passing_;  // where hosts wait for their markers

  std::mutex mutex_;
  std::condition_variable calls_;
  base::Parking* parked_at_ = nullptr;      // guarded by mutex_, as are the next two
  std::shared_ptr<Marker> late_marker_;     // of a `synchronize` that gave up, in the queue
  std::vector<device::SharedFailure> met_;  // failures of channels that `synchronize` may have to throw
  std::atomic<bool> any_met_{false};
  std::atomic<bool> failed_{false};  // a verb has met a failure since the last `synchronize`
};

}  // namespace sluice
