// SPDX-License-Identifier: Apache-2.0
// The sending end: which bytes are written and not released, and the lanes that move them.
#pragma once

#include <array>

#include "segments/end.hpp"

namespace sluice::segments {

class SenderEnd final : public End {
 public:
  SenderEnd(Context& in, Rank of_peer, Tag of_tag, const Slice& source);

  /// False: not within the limit, and nothing was put.
  bool put(const Range& range, base::Limit& limit);
  /// Waits until the puts of these bytes have left the source. False: not within the limit.
  bool await_sent(const Range& range, base::Limit& limit);

 private:
  struct Lane {
    Sender end;
    Range range;        // of its last put, until that is known to have left the source
    bool busy = false;  // a thread is putting
  };

  void take_in() override;
  void add_places(std::vector<base::Parking*>& places) const override;
  void stop() noexcept override {}
  /// With the mutex: takes a lane for the put, and counts its bytes as written. Null: it must wait.
  Lane* reserve(const Range& range);
  /// Fails the channel if the receiver cannot be told.
  void tell(Lane& lane, const Range& range);
  /// With the mutex.
  bool sent(const Range& range);

  const Memory notes_;  // slots of `puts_` and `releases_`
  std::array<Lane, kLanes> lanes_;
  Sender puts_;        // a Record for each put
  Receiver releases_;  // and for each release
  IntervalSet written_;
};

}  // namespace sluice::segments
