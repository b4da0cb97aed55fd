// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/triggered.hpp"

#include <algorithm>
#include <utility>

namespace sluice::backends::ofi {

Owned<fid_cntr> open_counter(const Rail& rail) {
  fi_cntr_attr attributes{};
  attributes.events = FI_CNTR_EVENTS_COMP;
  attributes.wait_obj = FI_WAIT_NONE;
  return opened<fid_cntr>("fi_cntr_open", fi_cntr_open, rail.domain(), &attributes);
}

TickBell::TickBell(Station& station, Owned<fid_cntr> counter) : station_(station), counter_(std::move(counter)) {
  station.bells.push_back(this);
}

TickBell::~TickBell() {
  const std::lock_guard lock(station_.mutex);
  std::erase(station_.bells, this);
  counter_.reset();
}

/// sockets has room for 2000 writes under way. Writes that fire beyond that wait until their counter is touched again,
/// if only by adding nothing (test: Bursts.*).
bool TickBell::look() {
  const std::uint64_t rung = word.value.load(std::memory_order_acquire);
  const bool nudged = std::exchange(nudged_, false);
  if (rung <= counted_ && !nudged) return false;
  const std::uint64_t before = std::exchange(counted_, std::max(rung, counted_));
  add(counted_ - before);
  return counted_ != before;
}

ArmedWork::ArmedWork(Station& station, Rail& rail, int entries)
    : station_(station), rail_(rail), entries_(entries), completed_(open_counter(rail)),
      work_(static_cast<std::size_t>(entries)) {
  for (Work& work : work_) {
    work.operation.armed = &work.deferred.context;
    rail.know(work.operation, *this);
  }
  station.entries_left -= entries;
}

ArmedWork::~ArmedWork() {
  const std::lock_guard lock(station_.mutex);
  rail_.forget(*this);
  source_.reset();
  completed_.reset();
}

bool ArmedWork::queue(std::uint64_t epoch) {
  const int code = fi_control(&rail_.domain()->fid, FI_QUEUE_WORK, &of(epoch).deferred);
  if (code == -FI_EAGAIN || code == -FI_ENOSPC) return false;
  queued_ = epoch;
  if (code < 0) ended(of(epoch).operation, text_of(code));
  return true;
}

/// A counter counts the successes, so this is a failure.
void ArmedWork::ended(Operation&, const std::string& why_not) {
  ++failures_;
  if (why_.empty()) why_ = why_not;
}

/// A failure is counted before the queue reports it. So the work stays for one more look at the queue: else the report
/// might be taken for that of another put, whose work may have the same address.
bool ArmedWork::look() {
  const bool complete = ended() >= queued_;
  if (complete) station_.entries_left += std::exchange(entries_, 0);
  return std::exchange(was_complete_, complete);
}

}  // namespace sluice::backends::ofi
