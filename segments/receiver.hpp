// SPDX-License-Identifier: Apache-2.0
// The receiving end: which bytes have arrived and are not released.
#pragma once

#include <array>

#include "segments/end.hpp"

namespace sluice::segments {

/// A range in a WaitAny.
struct Watched {
  Range range;
  bool reported = false;  ///< and no byte was released since
};

class ReceiverEnd final : public End {
 public:
  ReceiverEnd(Context& in, Rank of_peer, Tag of_tag, const Slice& target);

  /// Waits until the bytes have arrived. False: not within the limit.
  bool await_arrived(const Range& range, base::Limit& limit);
  void release(const Range& range);

  // For a WaitAny.
  runtime::ChannelEnd& main() const noexcept { return core_of(puts_); }
  std::shared_ptr<Watched> watch(const Range& range);
  /// True if it is to be reported, or will never be.
  bool ready(const Watched& watched) noexcept;
  enum class Found : std::uint8_t { nothing, arrived, closed };
  /// Reports it. @throws the failure of the channel
  Found report(Watched& watched);
  void add_places(std::vector<base::Parking*>& places) const override;
  /// The whole buffer.
  void lend_to_kernels(device::Driver& driver, int gpu) { core_of(lanes_.front().end).lend_slots(driver, gpu); }

 private:
  struct Lane {
    Receiver end;
    std::optional<Range> told;  // of a put that is to arrive
  };

  void take_in() override;
  void stop() noexcept override;
  // With the mutex.
  void take_arrivals();
  /// Tells the sender of releases, as far as it has taken note of earlier ones.
  void tell();
  void tell_later();
  /// The sender has closed, and all it has put has arrived.
  bool all_arrived() const noexcept;

  const Memory notes_;  // slots of `puts_` and `releases_`
  std::array<Lane, kLanes> lanes_;
  Receiver puts_;    // a Record for each put
  Sender releases_;  // and for each release
  IntervalSet arrived_;
  IntervalSet to_tell_;  // released, and the sender does not know
  std::vector<std::weak_ptr<Watched>> watched_;
  bool telling_ = false;  // `teller_` is at work
  bool stopped_ = false;
  std::unique_ptr<HostStream> teller_;  // null: the sender has always been quick enough
};

}  // namespace sluice::segments
