// SPDX-License-Identifier: Apache-2.0
// Checks of SLUICE_CHECK=1, for mistakes that otherwise give wrong numbers, or hang without a word.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/places.hpp"
#include "base/races.hpp"
#include "base/words.hpp"
#include "device/gpu.hpp"
#include "runtime/end_info.hpp"

namespace sluice::runtime {

class ChannelEnd;

enum class Verb : std::uint8_t {
  acquire,
  close,
  commit,
  credited,
  drain,
  on_device,
  put,
  release,
  start,
  test,
  test_some,
  wait,
  wait_any,
  wait_for,
  wait_some
};

/// A call by the program.
struct Call {
  Verb verb{};
  base::Place place;
};

/// "put at halo.cpp:41"
std::string text_of(const Call& call);

/// The lock of what the checks know. ThreadSanitizer sees neither the lock nor what it guards: this order is none of
/// the program's, and would hide races.
class HiddenLock {
 public:
  explicit HiddenLock(std::mutex& mutex) : lock_(mutex) {}
  /// Waits for `condition` up to `until`. False: not in time.
  bool wait(std::condition_variable& condition, base::Clock::time_point until) {
    return condition.wait_until(lock_, until) == std::cv_status::no_timeout;
  }

 private:
  [[no_unique_address]] const base::races::NoOrder no_order_;
  [[no_unique_address]] const base::races::Unseen unseen_;
  std::unique_lock<std::mutex> lock_;
};

/// Finds threads that use one object at once. It sees only calls that overlap in time. So a thread that takes over from
/// another stays in its call for a moment, as do calls number 1, 2, 4, 8 ...: a thread that nothing keeps out calls in
/// that moment (Erickson et al., "Effective Data-Race Detection for the Kernel", OSDI 2010).
class OneUser {
 public:
  /// The caller is in `call` until `leave`. Else returns the call that another thread is in.
  std::optional<Call> enter(const Call& call);
  void leave() noexcept;
  /// The call that the calling thread is in.
  Call current() const;

 private:
  mutable std::mutex mutex_;
  std::uint64_t calls_ = 0;
  int depth_ = 0;  // calls that the user is in, one inside of the other
  std::thread::id user_, last_;
  Call call_;
};

/// Finds verbs that run before one that they need and that was enqueued earlier, on another stream. A put, a wait or a
/// release needs the earlier ones of its kind; a put also the acquire of its epoch, and a release the wait. An acquire
/// needs none: it waits for a word. Verbs that come too early are run late, in order: the end has failed then, but its
/// words have to rise for it to be closed.
class RunOrder {
 public:
  struct Enqueued {
    Call call;
    std::uint64_t epoch = 0;
    std::string stream;
  };
  struct TooEarly {
    Enqueued verb;
    Enqueued needed;
    std::string text() const;
  };
  /// Called where a verb is enqueued. Returns its number.
  std::uint64_t enqueue(Enqueued verb);
  /// The stream did not take the verb.
  void withdraw(std::uint64_t number) noexcept;
  /// Runs the verb when its stream reaches it. Calls `wrong` if a verb that it needs has not begun; then a later `run`
  /// of that verb does the work.
  template <class Work, class Wrong>
  void run(std::uint64_t number, device::Lane lane, Work work, Wrong wrong) {
    if (const auto early = begin(number)) {
      wrong(*early);
      if (defer(number, work)) return;
    }
    work(lane);
    end(number, lane);
  }

 private:
  struct UnderWay : Enqueued {
    std::uint64_t number = 0;
    bool begun = false;
    std::function<void(device::Lane)> late;
  };
  using Verbs = std::list<UnderWay>;

  /// A verb that has begun may have raised its word already, which the program may have seen. So this waits for the end
  /// of such a verb.
  std::optional<TooEarly> begin(std::uint64_t number);
  /// False: those that it needs have run meanwhile.
  bool defer(std::uint64_t number, std::function<void(device::Lane)> work);
  void end(std::uint64_t number, device::Lane lane);
  /// The verbs that this one needs, those first that have not begun; null: there are none.
  const UnderWay* needed_by(const UnderWay& verb) const noexcept;

  std::mutex mutex_;
  std::condition_variable ended_;
  std::uint64_t last_ = 0;
  Verbs under_way_;  // enqueued and not run to its end, the oldest first
};

/// Memory of an end's slots, until the end is closed.
class Watched {
 public:
  Watched(const EndInfo& info, const base::Place& opened);
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  ~Watched();

  /// Registers the slots. `owner` is locked when a released slot is used.
  /// @throws Error{Code::misuse} if the target slots of another receiver overlap these, unless both share
  /// their memory
  void begin(std::weak_ptr<ChannelEnd> owner);
  void end() noexcept;

  bool holds(const std::byte* address) const noexcept { return address >= begin_ && address < begin_ + bytes_; }
  bool overlaps(const std::byte* begin, const std::byte* end) const noexcept {
    return begin < begin_ + bytes_ && begin_ < end;
  }
  /// Called with the lock of all known ends.
  void freed(const base::Place& place) noexcept;
  /// Looks at the memory of the slots. Returns the error, or an empty text.
  std::string look() const;

  const EndInfo& info() const noexcept { return info_; }
  const base::Place& opened() const noexcept { return opened_; }
  const std::weak_ptr<ChannelEnd>& owner() const noexcept { return owner_; }

 private:
  const EndInfo& info_;
  const base::Place opened_;
  const std::byte* const begin_;
  const std::size_t bytes_;
  std::weak_ptr<ChannelEnd> owner_;
  std::atomic<bool> is_freed_{false};
  base::Place freed_at_;  // written before `is_freed_`
};

/// Places at which the latest epochs of a receiver were released.
class Releases {
 public:
  void add(std::uint64_t last, const Call& call);
  /// The release of `epoch`; none: it is not released. The place of an old one is unknown.
  std::optional<Call> of(std::uint64_t epoch) const;

 private:
  static constexpr std::size_t kKept = 1024;
  mutable std::mutex mutex_;
  std::uint64_t released_ = 0;
  std::deque<std::pair<std::uint64_t, Call>> latest_;
};

/// The checks of one end.
struct Checks {
  Checks(const EndInfo& info, const base::Place& opened) : watched(info, opened) {}
  OneUser user;
  RunOrder order;
  Releases releases;
  Watched watched;
  // The first epoch that the user's call may take. Atomic, since two threads of a wrong program write it: the check
  // reports that program, and ThreadSanitizer should not.
  std::atomic<std::uint64_t> first_epoch{0};
};

/// The slice of a slot of a receiver, whose `data` looks whether `epoch` was released.
Slice checked_slot(Slice slot, std::uint64_t epoch);

}  // namespace sluice::runtime
