// SPDX-License-Identifier: Apache-2.0
// The common part of the two ends of a segmented channel.
#pragma once

#include <sluice/context.hpp>
#include <sluice/error.hpp>
#include <sluice/segments.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/fork.hpp"
#include "base/limit.hpp"
#include "runtime/cores.hpp"
#include "runtime/fate.hpp"
#include "runtime/handles.hpp"
#include "runtime/stream_threads.hpp"
#include "segments/intervals.hpp"

namespace sluice::segments {

/// Channels that carry the bytes. Each has the whole buffer as its only slot, and moves one range at a time.
inline constexpr std::size_t kLanes = SegmentSender::kMostUnderWay;
/// Releases that the sender has not taken note of; more are kept by the receiver.
inline constexpr int kReleases = 64;
// Tags in the scope of a segmented channel, behind those of the lanes.
inline constexpr Tag kPutTag = kLanes;
inline constexpr Tag kReleaseTag = kLanes + 1;

/// Tells the receiver of a put, or the sender of a release.
struct Record {
  std::uint64_t offset = 0;
  std::uint64_t count = 0;
  std::uint64_t lane = 0;  ///< of a put
};

using detail::core_of;

class End {
 public:
  End(Context& in, Rank of_peer, Tag of_tag, Slice of_memory, const char* role);
  End(const End&) = delete;
  End& operator=(const End&) = delete;
  virtual ~End() = default;

  const base::Origin origin{};
  const Rank peer;
  const Tag tag;
  const Slice memory;

  /// @throws Error{Code::bad_argument} if the bytes do not lie inside the buffer
  Range range(std::size_t offset, std::size_t count) const;
  /// @throws Error{Code::misuse} once `close` was called; the failure of the channel
  void check_open() const;
  Error error(Code code, const std::string& what) const;
  [[noreturn]] void throw_timeout(const char* what, const Range& range, std::optional<Timeout> timeout) const;
  base::Limit limit(std::optional<Timeout> timeout) const { return base::Limit(timeout.value_or(context_.timeout())); }
  /// The stream goes on once `work(limit)` has returned, which a thread of this end calls. False, or an Error, fails
  /// the channel.
  void run(Stream stream, const char* what, const Range& range, std::function<bool(base::Limit&)> work);
  void wait_connected(std::optional<Timeout> timeout);
  void close(std::optional<Timeout> timeout);
  /// For the destructor of the handle. False: streams or the peer still use this end, which must be kept.
  bool leave() noexcept;
  std::string describe() const;

 protected:
  Sender open_sender(Tag of_part, const Slice& slots, int depth);
  Receiver open_receiver(Tag of_part, const Slice& slots, int depth);
  /// Once all ends are open. `hub`: the one that tells what the peer does. Waits are noted as its waits, and threads
  /// sleep at its word until another thread has changed something.
  void begin(const Receiver& hub);

  /// With the mutex: takes in what has arrived from the peer.
  virtual void take_in() = 0;
  virtual void add_places(std::vector<base::Parking*>& places) const = 0;
  /// Ends what threads of the derived class do.
  virtual void stop() noexcept = 0;
  /// @throws the failure of the channel, which all its ends share
  void check() const;
  /// Fails the channel, if it has not failed before.
  void fail(const Error& reason) noexcept { fate_->fail(reason.code(), reason.what()); }
  /// Blocks until `ready()`, which is called with the mutex after `take_in`. False: not within the limit.
  /// @param verb  of the table of waits; null: no call of the program waits, and the table has no row
  template <class Ready>
  bool await(base::Limit& limit, const char* verb, Ready ready) {
    std::exception_ptr thrown;
    bool done = false;
    const bool in_time = sleep_until(limit, verb, [&] {
      try {
        const std::lock_guard lock(mutex_);
        check();
        take_in();
        done = done || ready();  // a wait may call this again after it was true
      } catch (...) {
        thrown = std::current_exception();
      }
      return done || thrown != nullptr;
    });
    if (thrown != nullptr) std::rethrow_exception(thrown);
    return in_time;
  }
  /// Threads that sleep look again.
  void wake() noexcept { hub_->wake(); }
  /// The next message of `receiver`. Nothing: none has arrived, none follows, or it has failed.
  static std::optional<Slice> take(Receiver& receiver);

  mutable std::mutex mutex_;  // of what the derived class keeps
  Context context_;
  std::atomic<bool> abandoned_{false};  // waits end

 private:
  void lend_to_kernels(Stream stream);
  bool sleep_until(base::Limit& limit, const char* verb, const std::function<bool()>& ready);
  /// Returns an end that has not closed within the limit; null: all have.
  runtime::ChannelEnd* shut(base::Limit& limit);

  Scope scope_;
  const std::string name_;
  const std::shared_ptr<runtime::SharedFate> fate_ = std::make_shared<runtime::SharedFate>();
  std::vector<runtime::ChannelEnd*> ends_;         // which the handles of the derived class own
  const runtime::ChannelEnd* main_ = nullptr;      // the hub
  base::Parking* hub_ = nullptr;                   // its place to sleep
  std::optional<runtime::StreamThreads> threads_;  // from `begin` on
  std::atomic<bool> closing_{false};
  bool closed_ = false;
};

}  // namespace sluice::segments
