// SPDX-License-Identifier: Apache-2.0
// How a put finds out that its writes are visible at the peer: by one more write, a flush, which completes once it has
// been delivered, and so has all before it. A flush has bytes: over shm, one without never completes (libfabric before
// 1.20).
#include <algorithm>
#include <stdexcept>

#include "backends/ofi/rma.hpp"

namespace sluice::backends::ofi {

bool RmaPut::landed(std::uint64_t epoch) {
  const std::lock_guard lock(station_.mutex);
  draining_ = true;
  if (flushes_left_ == 0 && !flush_failure_.empty()) suspect(flush_failure_);
  return ask_landed(epoch);
}

/// True also if the peer is out of reach, since nothing of it can be known; and after a flush that has failed, or was
/// refused for too long, since closing has to end. Writes that were injected before it may be on their way still, and
/// find the key of the peer's memory closed, or, where memory of its own shares a registration, that memory in other
/// use.
bool RmaPut::settled() {
  const std::lock_guard lock(station_.mutex);
  const bool refused = flushes_left_ == 0 && !flush_failure_.empty();
  return lost() || refused || ask_landed(watch().done.value.load(std::memory_order_acquire));
}

/// Returns whether epochs up to this one, which have completed here, are visible at the peer. If not, sends flushes.
bool RmaPut::ask_landed(std::uint64_t epoch) {
  const bool completed_when_delivered = !station_.manner.ordered || place_.notice == Notice::counter;
  if (completed_when_delivered || landed_ >= epoch) return true;
  asked_ = std::max(asked_, epoch);
  station_.attend_to(*this);
  post_flushes();
  return false;
}

/// Returns whether a flush is still to be posted.
bool RmaPut::post_flushes() {
  if (flushes_left_ == 0 && asked_ > landed_ && flush_failure_.empty() && !lost()) {
    flushing_ = asked_;
    flushes_left_ = lanes_.size();
    for (Lane& lane : lanes_) lane.flush_due = true;
  }
  bool left = false;
  for (Lane& lane : lanes_) {
    if (lane.flush_due) left |= lane.flush_due = post_flush(lane);
  }
  return left;
}

/// Returns whether it is to be posted again in the next turn.
bool RmaPut::post_flush(Lane& lane) {
  try {
    const Posted posted = lane.rail->flush(lane.flushes, *lane.flush_write);
    if (posted != Posted::busy) lane.flush_refused.end();
    return posted == Posted::busy;
  } catch (const std::runtime_error& reason) {
    if (!lane.flush_refused.last(station_.patience)) return true;
    end_flush(failure_of(*lane.route, reason.what()));
    return false;
  }
}

void RmaPut::end_flush(const std::string& why_not) {
  if (!why_not.empty()) flush_failure_ = why_not;
  if (--flushes_left_ != 0) return;
  if (flush_failure_.empty()) {
    landed_ = flushing_;
    if (asked_ > landed_) station_.attend_to(*this);
  } else if (draining_) {
    suspect(flush_failure_);
  }
  watch().done_parking.wake();
}

}  // namespace sluice::backends::ofi
