// SPDX-License-Identifier: Apache-2.0
// Waits for whichever of several receivers comes first.
#pragma once

#include <sluice/device.hpp>
#include <sluice/wait_any.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/failure.hpp"
#include "device/host_stream.hpp"
#include "device/ledger.hpp"
#include "runtime/receiver.hpp"
#include "runtime/stream_threads.hpp"

namespace sluice::detail {

/// One of what a WaitAny waits for: the next epoch of a receiver, a range of segments, the next count of a counter.
class Awaited {
 public:
  Awaited() = default;
  Awaited(const Awaited&) = delete;
  Awaited& operator=(const Awaited&) = delete;
  virtual ~Awaited() = default;

  /// Its end, or one of its ends, which fails and closes with it.
  virtual runtime::ChannelEnd& end() const noexcept = 0;
  /// `take` returns or throws at once.
  virtual bool ready() noexcept = 0;
  /// Adds the places where threads sleep for what `ready` looks at.
  virtual void add_places(std::vector<base::Parking*>& places) const = 0;
  /// Takes the arrival. Nothing: another thread was quicker. `from`: the return address of the public function.
  virtual std::optional<WaitAny::Arrival> take(std::size_t index, const void* from) = 0;
  /// Gives back what `take` has returned, in the order of the lane, which runs now.
  virtual void release(device::Lane lane, const void* from) = 0;
  /// Kernels of the GPU will use the memory of what `take` returns. @throws Error, GpuError
  virtual void lend_to_kernels(device::Driver& driver, int gpu) = 0;
};

/// Memory where kernels find the arrivals of tickets of waits on one stream. Any thread.
class TicketMemory {
 public:
  struct Record {
    std::uint64_t* size = nullptr;
    DeviceArrival* first = nullptr;
    std::size_t most = 0;  // arrivals
  };
  /// One record, or none: it moves without memory of its own.
  using Records = std::list<Record>;

  explicit TicketMemory(device::Driver& driver) : driver_(driver) {}
  /// Maps more memory if few records are free, which cannot be done while the stream is parked. One thread at a time.
  /// @throws GpuError, std::bad_alloc
  void map_ahead(std::size_t most);
  /// A record of size 0; none if none is free.
  Records take(std::size_t most);
  /// Kernels that the stream was given already may still read it.
  void drop(Records& record) noexcept;
  /// All that were dropped since the last call.
  Records dropped() noexcept;
  /// No kernel reads them any more.
  void reuse(Records& records) noexcept;
  /// It is not known when the last kernel reads them: the memory is never used again.
  void keep() noexcept;

 private:
  device::Driver& driver_;
  std::mutex mutex_;  // never held while the driver maps: threads that end the waits of parked streams need it
  std::vector<std::unique_ptr<device::Ledger>> pages_;
  std::map<std::size_t, Records> free_;  // by `most`
  Records dropped_;
};

/// The result of one wait on a stream. All but the flags is written before `done`.
struct AnyTicket {
  explicit AnyTicket(std::weak_ptr<const WaitAnyCore> from) noexcept : of(std::move(from)) {}
  AnyTicket(const AnyTicket&) = delete;
  AnyTicket& operator=(const AnyTicket&) = delete;
  ~AnyTicket() {
    if (memory != nullptr) memory->drop(record);
  }
  const std::weak_ptr<const WaitAnyCore> of;

  std::vector<WaitAny::Arrival> arrivals;
  device::SharedFailure failed;  // a receiver
  std::exception_ptr thrown;     // by what has no receiver to blame
  std::atomic<bool> done{false};
  std::atomic<bool> released{false};  // `release` was called

  // For kernels, on a stream of a GPU.
  void write_for_kernels() noexcept;
  std::shared_ptr<TicketMemory> memory;
  TicketMemory::Records record;
};

class WaitAnyCore : public std::enable_shared_from_this<WaitAnyCore> {
 public:
  std::size_t add(std::unique_ptr<Awaited> one);
  /// Returns nothing if none is left, or after `timeout`. `from`: the return address of the public function.
  std::optional<WaitAny::Arrival> wait_for(Timeout timeout, const void* from);
  /// Like `wait_for`, and then takes all that are ready, one arrival of each at most.
  std::vector<WaitAny::Arrival> wait_some(Timeout timeout, const void* from);
  enum class Takes : std::uint8_t { one, some };
  std::shared_ptr<AnyTicket> wait(Stream stream, Takes takes, const void* from);
  void release(Stream stream, const std::shared_ptr<AnyTicket>& ticket, const void* from);
  /// @throws Error{Code::misuse} if a stream uses this, and this thread does not run it
  void check_user() const;
  /// Ends waits on streams, and waits until none of them runs; keeps all if that takes too long.
  void abandon() noexcept;
  /// Counts one whose failure is held: a loop until none is left must not end before it is thrown.
  std::size_t left() const noexcept { return left_ + (held_of_left_ ? 1U : 0U); }
  /// The default of `wait`.
  Timeout timeout() const noexcept;
  [[noreturn]] void throw_timeout(Timeout stated) const;

  const base::Origin origin;

 private:
  class OnStream;
  class Asleep;
  class Enqueued;
  void check_stream(Stream stream);
  /// Calls `work(lane, enqueued)` in the order of the stream. An exception of it stops a HostStream, and ends waits of
  /// GPUs' streams.
  template <class F>
  void give(Stream stream, F work);
  void wait_on(device::Lane lane, Enqueued& enqueued, AnyTicket& ticket, Takes takes, const void* from);
  void take_on(device::Lane lane, AnyTicket& ticket, Takes takes, const void* from);
  void take_in_order(AnyTicket& ticket, Takes takes, Timeout limit, const void* from);
  void release_on(device::Lane lane, const AnyTicket& ticket, const void* from);
  // wait_any_on_gpu.cpp
  void check_gpu(Stream stream);
  void lend_to_kernels();
  void lend(AnyTicket& ticket, Stream stream);
  void give_to_gpu(Stream stream, std::function<void(device::Lane)> work);
  bool leave_gpus(base::Limit& limit) noexcept;
  bool close_threads(base::Limit& limit) noexcept;
  /// The wait that a GPU's stream runs now was ended by another failure.
  bool given_up() const noexcept { return on_gpu_ && fate_->failed(); }
  /// The stream that runs a wait now, or the WaitAny, is being destroyed, or the stream waits no more.
  bool interrupted() const noexcept { return on_ != nullptr && (abandoned_ || on_->ending() || given_up()); }
  bool all_closed() const noexcept;
  bool end_waits(base::Limit& limit) noexcept;
  template <class Ready>
  bool await_end(base::Limit& limit, Ready ready) noexcept {
    while (!base::wait_until(ended_, ready, limit.next())) {
      if (limit.over()) return ready();
    }
    return true;
  }
  [[noreturn]] void throw_why_none(Timeout limit) const;
  Error error(Code code, const std::string& what) const { return {code, rank_, -1, 0, 0, what}; }

  /// Looks from `next_` on, so that each has its turn. False: none is ready.
  bool find() noexcept;
  bool await_one(base::Limit& limit);
  bool sleep_until(base::Limit& limit, device::Helper* helper);
  /// Takes the arrival of `next_`.
  std::optional<WaitAny::Arrival> take(const void* from);
  void leave_out(std::size_t index) noexcept;
  void check_all() const;
  void find_places();
  std::string states() const;
  /// Of those that have not left, of which there is one.
  const runtime::ChannelEnd& one_left() const noexcept;

  std::vector<std::unique_ptr<Awaited>> all_;  // null: left
  std::atomic<std::size_t> left_ = 0;
  std::size_t next_ = 0;
  std::vector<base::Parking*> places_;      // of the words that are waited for
  std::exception_ptr held_;                 // that `wait_some` has met behind an arrival
  std::atomic<bool> held_of_left_ = false;  // its receiver was left out
  std::unique_ptr<Awaited> failed_;         // the last one that was left out with a failure
  Rank rank_ = -1;

  // On streams.
  std::atomic<std::uint64_t> enqueued_{0};    // waits and releases that have not ended
  std::atomic<const void*> stream_{nullptr};  // the handle of the last one, for comparing
  std::atomic<Stream::Kind> kind_{};          // its kind
  std::atomic<bool> running_{false};          // a stream runs one of them now
  HostStream::Impl* on_ = nullptr;            // that stream, or the thread of a GPU's
  std::atomic<bool> abandoned_{false};
  std::mutex mutex_;
  base::Parking* asleep_at_ = nullptr;  // guarded by mutex_
  std::shared_ptr<WaitAnyCore> kept_;   // itself, to the end of the process
  base::Parking ended_;                 // where the destructor waits for `running_` and `enqueued_`

  // On streams of GPUs.
  std::atomic<bool> on_gpu_{false};                    // `stream_` is one
  std::shared_ptr<const runtime::Services> services_;  // of the last one that was added
  std::shared_ptr<runtime::SharedFate> fate_ = std::make_shared<runtime::SharedFate>();  // of `threads_`
  std::unique_ptr<runtime::StreamThreads> threads_;                                      // null: not used on any
  std::map<void*, std::shared_ptr<TicketMemory>> memory_;                                // by the stream's handle
  device::Driver* driver_ = nullptr;                                                     // of that GPU
  int gpu_ = -1;
  std::size_t lent_ = 0;  // so many of `all_` have been lent to kernels
};

/// Makes the core of a WaitAny at its first use.
struct WaitAnyAccess {
  static WaitAnyCore& core(std::shared_ptr<WaitAnyCore>& core);
};

}  // namespace sluice::detail
