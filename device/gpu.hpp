// SPDX-License-Identifier: Apache-2.0
// The operations of a stream of any kind: the whole surface between the runtime and a GPU, vendor-free. On a machine
// without a GPU a stream is a CPU thread, which does each operation at once.
#pragma once

#include <sluice/error.hpp>
#include <sluice/stream.hpp>

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>

#include "base/trace.hpp"
#include "base/waits.hpp"
#include "base/words.hpp"
#include "device/gpu_call.hpp"
#include "device/host_stream.hpp"

namespace sluice::device {

/// The stream that operations go to, in order. Without `gpu`: the calling thread, which is the stream now; the stream
/// is a HostStream if `host` is set. With `gpu`: a GPU's stream, where nothing has happened yet when a verb returns.
struct Lane {
  HostStream::Impl* host = nullptr;
  GpuCall* gpu = nullptr;
};

/// Does the engine's work in a CPU thread that waits, so that no change of thread is needed.
class Helper {
 public:
  virtual ~Helper() = default;
  /// Runs one turn, unless another thread is running one.
  virtual void help() noexcept = 0;
  /// Runs one turn, after another thread's if need be, so that all arrivals are seen.
  virtual void look() noexcept = 0;
};

/// Helps until `ready()`, for a limited time: waking the engine for each part of a large message would halve the
/// bandwidth of a network. Returns the last `ready()`.
template <class Ready>
bool help_until(Helper& helper, Ready ready, base::Clock::time_point deadline) {
  constexpr auto kHelping = std::chrono::milliseconds(20);
  constexpr auto kAlone = std::chrono::microseconds(50);  // later the wait may be for other threads of this core
  const auto began = base::Clock::now();
  deadline = std::min(deadline, began + kHelping);
  for (auto now = began; now < deadline; now = base::Clock::now()) {
    for (int i = 0; i < 16; ++i) {
      helper.help();
      if (ready()) return true;
    }
    if (now > began + kAlone) std::this_thread::yield();
  }
  return false;
}

/// Error of an end that has work on a GPU whose context has failed (Driver::lost).
inline constexpr const char* kLost = "the GPU's context has failed: what its streams were given does not run any more";

/// A wait for one word.
struct Wait {
  const base::Word* word = nullptr;  // null: a GPU's stream waits
  std::uint64_t at_least = 0;
  base::Parking* parking = nullptr;
  std::uint64_t epoch = 0;     // for the log
  const char* what = nullptr;  // for the timeline; null: part of another slice
  bool peer_copies = false;    // the peer does its part of a copy
};

/// One end of a channel, for its streams: its state, and functions to report failures.
class Watch {
  /// One word, so that a put whose wait the failure ends finds the end shut.
  enum class State : std::uint8_t { open, shut, failed };
  std::atomic<State> state_{State::open};
  std::atomic<const void*> sleeper_{nullptr};
  base::Progress& progress_ = base::take_progress();

 public:
  Watch() = default;
  virtual ~Watch() { base::give_back(progress_); }

  /// True once the end has failed: waits end, puts move nothing.
  bool failed() const noexcept { return state_.load(std::memory_order_acquire) == State::failed; }
  /// True if puts move nothing: the end has failed, or no more puts are needed (closing.hpp).
  bool shut() const noexcept { return state_.load(std::memory_order_acquire) != State::open; }

  /// Records the failure, if it is the first, and releases every wait. Any thread.
  virtual void fail(Code code, const std::string& what) noexcept = 0;
  /// `wait` of this end has lasted `so_far` (base::Lasted): notes it, logs or fails as the settings say. Returns the
  /// longest time until the next call.
  virtual base::Clock::duration waited(const Wait& wait, base::Clock::duration so_far, Timeout limit,
                                       base::WaitNote& note) noexcept = 0;

  /// A thread waits for `epoch` of this end, and may do a part of the work that it waits for.
  virtual void assist(std::uint64_t /*epoch*/) noexcept {}

  /// On the lane: the put of `epoch`, the next one, would not wait for credit. Loads the word, unless that is known.
  virtual bool next_has_credit(std::uint64_t /*epoch*/) noexcept { return false; }

  /// Count of this end's completed puts: the source may be overwritten, and the signal is raised (or never will be).
  base::Word& done = progress_.word;
  base::Parking& done_parking = progress_.parking;
  base::trace::Channel traced;  ///< set before it is used
  /// The host stream that waits, or sleeps, in a wait of this end, for comparing; null: none.
  const void* sleeper() const noexcept { return sleeper_.load(); }
  void sleeps(const HostStream::Impl* stream) noexcept { sleeper_.store(stream); }
  /// May be seen late: a look for sleepers may find one that has just gone on.
  void awakes() noexcept { sleeper_.store(nullptr, std::memory_order_release); }

 protected:
  /// For one whose waiters sleep where those of another do.
  explicit Watch(base::Parking& parking) : done_parking(parking) {}
  void set_failed() noexcept { state_.store(State::failed); }
  /// Like `failed`, in the one order of all sequentially consistent operations. If one thread stores and then calls
  /// this, and another fails the end and then loads, the first sees the failure or the second sees the store.
  bool failed_in_order() const noexcept { return state_.load() == State::failed; }
  void set_shut() noexcept {
    State open = State::open;
    state_.compare_exchange_strong(open, State::shut);
  }
};

/// False for the stream of a moved-from HostStream, and for a HostStream of the parent in a child of fork.
inline bool usable(Stream stream) noexcept {
  if (stream.kind() != Stream::Kind::host) return true;
  return stream.handle() != nullptr && static_cast<HostStream::Impl*>(stream.handle())->here();
}

/// Out of line, so that program order carries none of its code.
template <class F>
[[gnu::noinline]] void on_host(HostStream::Impl* host, F work, bool puts = false) {
  host->enqueue([work = std::move(work), host]() mutable { work(Lane{host}); }, puts);
}

/// True for a GPU's stream.
inline bool of_gpu(Stream stream) noexcept {
  return stream.kind() == Stream::Kind::cuda || stream.kind() == Stream::Kind::hip;
}

/// Runs `work(lane)`, which enqueues its operations on the stream of `call`. @throws GpuError
template <class F>
// NOLINTNEXTLINE(performance-unnecessary-value-param): program order would have to keep what is referred to in memory
[[gnu::noinline]] void on_gpu(GpuCall&& call, F work) {
  work(Lane{nullptr, &call});
  call.issue();
}

/// Issues `work(lane)` in the order of `stream`: in program order it runs now, on a HostStream later; on a GPU's stream
/// it runs now and enqueues its operations.
/// @throws GpuError
template <class F>
void in_order(Stream stream, F work) {
  if (stream.kind() == Stream::Kind::program_order) {
    work(Lane{});
  } else if (of_gpu(stream)) {
    on_gpu(GpuCall(stream), std::move(work));
  } else {
    on_host(static_cast<HostStream::Impl*>(stream.handle()), std::move(work));
  }
}

/// @throws Error{Code::unsupported} for a stream that this build cannot drive.
void check_supported(Stream stream, Rank rank);

/// Later work on the lane runs only when the word is reached, or when `watch` has failed.
void wait_slowly(Lane lane, const Wait& wait, Watch& watch, Helper* helper) noexcept;
void wait_on_gpu(Lane lane, const Wait& wait, const Watch& watch);
inline void wait(Lane lane, const Wait& wait, Watch& watch, Helper* helper) {
  if (base::reached(*wait.word, wait.at_least)) [[likely]]
    return;
  if (lane.gpu != nullptr) return wait_on_gpu(lane, wait, watch);
  wait_slowly(lane, wait, watch, helper);
}

/// Raises the word in the lane's order. A reader that sees the value sees all earlier writes. A GPU wakes no sleeping
/// thread: see base::Parking::silence.
inline void raise(Lane lane, base::Word& word, std::uint64_t value, base::Parking& parking) {
  if (lane.gpu != nullptr) return lane.gpu->write(word, value);
  base::raise(word, value, parking);
}

}  // namespace sluice::device
