// SPDX-License-Identifier: Apache-2.0
// What SLUICE_CHECK=1 looks for: mistakes that otherwise give wrong numbers, or nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/places.hpp"
#include "device/gpu.hpp"
#include "runtime/end_info.hpp"

namespace sluice::runtime {

class ChannelEnd;

/// A call by the program.
struct Call {
  std::string_view verb;
  base::Place place = nullptr;
};

/// "put at halo.cpp:41"
std::string text_of(const Call& call);

/// Finds threads that use one object at once. It sees calls that overlap in time, and no order: so a thread that takes
/// over from another stays for a moment, in which a second user comes by, and so do calls number 1, 2, 4, 8 ...
/// (Erickson et al., "Effective Data-Race Detection for the Kernel", OSDI 2010).
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

/// Finds verbs that run before one that was enqueued earlier, on another stream. They are run late, in order: the end
/// has failed then, but its words have to rise for it to be closed.
class RunOrder {
 public:
  struct Verb {
    std::uint64_t number = 0;
    Call call;
    std::uint64_t epoch = 0;
    const HostStream::Impl* stream = nullptr;
    std::function<void(device::Lane)> late;
  };
  /// Called where a verb is enqueued. Returns its number.
  std::uint64_t enqueue(const Call& call, std::uint64_t epoch, const HostStream::Impl* stream);
  /// Called where its turn on its stream has come. `wrong` is called with the reason if an earlier verb has not run;
  /// then a later call of `run` of that one does the work.
  template <class Work, class Wrong>
  void run(std::uint64_t number, device::Lane lane, Work work, Wrong wrong) {
    if (!is_next(number)) {
      wrong(why_not(number));
      if (defer(number, work)) return;
    }
    work(lane);
    end(number, lane);
  }

 private:
  bool is_next(std::uint64_t number);
  std::string why_not(std::uint64_t number);
  /// False: the earlier ones have run meanwhile.
  bool defer(std::uint64_t number, std::function<void(device::Lane)> work);
  void end(std::uint64_t number, device::Lane lane);

  std::mutex mutex_;
  std::uint64_t last_ = 0;
  std::deque<Verb> under_way_;  // enqueued and not run to its end, the oldest first
};

/// Memory of an end's slots, until the end is closed.
class Watched {
 public:
  Watched(const EndInfo& info, base::Place opened);
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  ~Watched();

  /// Makes the slots known. `owner` is asked for when somebody uses a released slot.
  /// @throws Error{Code::misuse} if the target slots of another receiver overlap these
  void begin(std::weak_ptr<ChannelEnd> owner);
  void end() noexcept;

  bool holds(const std::byte* address) const noexcept { return address >= begin_ && address < begin_ + bytes_; }
  bool overlaps(const std::byte* begin, const std::byte* end) const noexcept {
    return begin < begin_ + bytes_ && begin_ < end;
  }
  void freed(base::Place place) noexcept;
  /// What is wrong with the memory of the slots; empty: nothing.
  std::string look() const;

  const EndInfo& info() const noexcept { return info_; }
  base::Place opened() const noexcept { return opened_; }
  const std::weak_ptr<ChannelEnd>& owner() const noexcept { return owner_; }

 private:
  const EndInfo& info_;
  const base::Place opened_;
  const std::byte* const begin_;
  const std::size_t bytes_;
  std::weak_ptr<ChannelEnd> owner_;
  std::atomic<bool> is_freed_{false};
  std::atomic<base::Place> freed_at_{nullptr};
};

/// Where the latest epochs of a receiver were released.
class Releases {
 public:
  void add(std::uint64_t last, const Call& call);
  /// The release of `epoch`; none: it is not released. The place of an old one is unknown.
  std::optional<Call> of(std::uint64_t epoch) const;

 private:
  static constexpr std::size_t kKept = 4096;
  mutable std::mutex mutex_;
  std::uint64_t released_ = 0;
  std::deque<std::pair<std::uint64_t, Call>> latest_;
};

/// The checks of one end.
struct Checks {
  Checks(const EndInfo& info, base::Place opened) : watched(info, opened) {}
  OneUser user;
  RunOrder order;
  Releases releases;
  Watched watched;
};

/// The slice of a slot of a receiver, whose `data` looks whether `epoch` was released.
Slice checked_slot(Slice slot, std::uint64_t epoch);

}  // namespace sluice::runtime
