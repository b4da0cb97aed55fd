// SPDX-License-Identifier: Apache-2.0
// The life of a put begins in `SenderEnd::put`.
#include "segments/sender.hpp"

#include <algorithm>
#include <cstring>

#include "runtime/error_text.hpp"

namespace sluice::segments {

SenderEnd::SenderEnd(Context& in, Rank of_peer, Tag of_tag, const Slice& source)
    : End(in, of_peer, of_tag, source, "sender"), notes_(in.allocate((kLanes + kReleases) * sizeof(Record))) {
  Tag part = 0;
  for (Lane& lane : lanes_) lane.end = open_sender(part++, source, 1);
  puts_ = open_sender(kPutTag, notes_.slice(0, kLanes * sizeof(Record)), kLanes);
  releases_ = open_receiver(kReleaseTag, notes_.slice(kLanes * sizeof(Record), kReleases * sizeof(Record)), kReleases);
  begin(releases_);
}

void SenderEnd::take_in() {
  while (const auto slot = take(releases_)) {
    Record record;
    std::memcpy(&record, slot->data(), sizeof record);
    written_.remove({record.offset, record.count});
    releases_.release({});
  }
}

void SenderEnd::add_places(std::vector<base::Parking*>& places) const {
  core_of(releases_).add_places(places);
  core_of(puts_).add_places(places);
  for (const Lane& lane : lanes_) {
    detail::SenderCore& core = core_of(lane.end);
    core.add_places(places);
    // A busy lane may be in the range that a wait for its source sleeps for, which looks for its places rarely.
    if (lane.busy || !base::reached(core.done, core.epoch())) places.push_back(&core.done_parking);
  }
}

SenderEnd::Lane* SenderEnd::reserve(const Range& range) {
  if (core_of(releases_).all_taken()) throw error(Code::misuse, "the receiver has closed its end");
  if (written_.intersects(range)) return nullptr;
  // `tell` must not wait, for it holds the mutex: neither for its first record nor behind those of the busy lanes.
  const auto busy = static_cast<std::uint64_t>(std::ranges::count_if(lanes_, &Lane::busy));
  if (!core_of(puts_).may_put(busy + 1)) return nullptr;
  const auto lane =
      std::ranges::find_if(lanes_, [](const Lane& one) { return !one.busy && core_of(one.end).may_put(); });
  if (lane == lanes_.end()) return nullptr;
  written_.add(range);
  lane->range = range;
  lane->busy = true;
  return &*lane;
}

/// The bytes are moved without the mutex, so that threads put at the same time.
bool SenderEnd::put(const Range& range, base::Limit& limit) {
  if (range.count == 0) return true;
  Lane* lane = nullptr;
  if (!await(limit, "puts", [&] { return (lane = reserve(range)) != nullptr; })) return false;
  try {
    lane->end.put({}, range.offset, range.count);
    tell(*lane, range);
  } catch (const Error& reason) {
    const std::lock_guard lock(mutex_);
    written_.remove(range);
    lane->busy = false;
    wake();
    throw error(reason.code(), detail::without_kind(reason));
  }
  return true;
}

/// Does not wait for the peer: `reserve` has looked.
void SenderEnd::tell(Lane& lane, const Range& range) {
  const std::lock_guard lock(mutex_);
  const Record record{range.offset, range.count, static_cast<std::uint64_t>(&lane - lanes_.data())};
  try {
    std::memcpy(puts_.acquire({}).data(), &record, sizeof record);
    puts_.put({});
  } catch (const Error& reason) {
    // The lane has an epoch without a record, and is of no more use. Only a receiver that has closed needs none.
    if (reason.code() != Code::misuse) fail(reason);
    throw;
  }
  lane.busy = false;
  wake();
}

bool SenderEnd::sent(const Range& range) {
  for (Lane& lane : lanes_) {
    if (!lane.range.overlaps(range)) continue;
    if (lane.busy || !base::reached(core_of(lane.end).done, lane.end.epoch())) return false;
    core_of(lane.end).await_sent({});  // at once; ThreadSanitizer learns that the source is free
    lane.range = {};
  }
  return true;
}

bool SenderEnd::await_sent(const Range& range, base::Limit& limit) {
  return await(limit, "waits for its source", [&] { return sent(range); });
}

}  // namespace sluice::segments
