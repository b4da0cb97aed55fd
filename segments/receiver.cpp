// SPDX-License-Identifier: Apache-2.0
// A put arrives in `take_arrivals`, and its bytes go back in `release`.
#include "segments/receiver.hpp"

#include <algorithm>
#include <cstring>

#include "base/races.hpp"

namespace sluice::segments {

ReceiverEnd::ReceiverEnd(Context& in, Rank of_peer, Tag of_tag, const Slice& target)
    : End(in, of_peer, of_tag, target, "receiver"), notes_(in.allocate((kLanes + kReleases) * sizeof(Record))) {
  Tag part = 0;
  for (Lane& lane : lanes_) {
    lane.end = open_receiver(part++, target, 1);
    core_of(lane.end).lands_in_parts();
  }
  puts_ = open_receiver(kPutTag, notes_.slice(0, kLanes * sizeof(Record)), kLanes);
  releases_ = open_sender(kReleaseTag, notes_.slice(kLanes * sizeof(Record), kReleases * sizeof(Record)), kReleases);
  begin(puts_);
}

void ReceiverEnd::add_places(std::vector<base::Parking*>& places) const {
  core_of(puts_).add_places(places);
  core_of(releases_).add_places(places);
  for (const Lane& lane : lanes_) core_of(lane.end).add_places(places);
}

void ReceiverEnd::take_in() {
  while (const auto slot = take(puts_)) {
    Record record;
    std::memcpy(&record, slot->data(), sizeof record);
    puts_.release({});
    lanes_.at(record.lane).told = Range{record.offset, record.count};
  }
  take_arrivals();
  tell();
}

/// Nothing orders the bytes of a lane with their record, nor lanes with each other.
void ReceiverEnd::take_arrivals() {
  bool any = false;
  for (Lane& lane : lanes_) {
    if (!lane.told || !take(lane.end)) continue;
    if (base::races::kOn && detail::SliceAccess::block(memory)->extent.driver == nullptr)
      base::races::arrival_writes(memory.data() + lane.told->offset, lane.told->count);
    arrived_.add(*lane.told);
    lane.told.reset();
    lane.end.release({});
    any = true;
  }
  if (any) wake();
}

bool ReceiverEnd::all_arrived() const noexcept {
  return core_of(puts_).all_taken() &&
         std::ranges::none_of(lanes_, [](const Lane& lane) { return lane.told.has_value(); });
}

bool ReceiverEnd::await_arrived(const Range& range, base::Limit& limit) {
  return await(limit, "waits", [&] {
    if (arrived_.contains(range)) return true;
    if (all_arrived())
      throw error(Code::closed, "the sender has closed its end, and some bytes of " + std::to_string(range.count) +
                                    " from offset " + std::to_string(range.offset) + " were not put");
    return false;
  });
}

void ReceiverEnd::release(const Range& range) {
  const std::lock_guard lock(mutex_);
  check();
  take_in();
  if (!arrived_.contains(range))
    throw error(Code::misuse, "release: some bytes of " + std::to_string(range.count) + " from offset " +
                                  std::to_string(range.offset) + " have not arrived, or are released");
  arrived_.remove(range);
  for (const auto& one : watched_) {
    const auto watched = one.lock();
    if (watched != nullptr && watched->range.overlaps(range)) watched->reported = false;
  }
  to_tell_.add(range);
  tell();
  if (!to_tell_.empty()) tell_later();
}

void ReceiverEnd::tell() {
  while (!to_tell_.empty() && !core_of(releases_).failed() && core_of(releases_).may_put()) {
    const Range range = to_tell_.first();
    const Record record{range.offset, range.count, 0};
    try {
      std::memcpy(releases_.acquire({}).data(), &record, sizeof record);
      releases_.put({});
    } catch (const Error& reason) {
      if (reason.code() != Code::misuse) throw;
      to_tell_ = {};  // the sender has closed, and puts no more
      return;
    }
    to_tell_.remove(range);
  }
}

/// The program's threads may make no further call here, and the sender may wait for these bytes.
void ReceiverEnd::tell_later() {
  if (telling_ || stopped_) return;
  if (teller_ == nullptr) teller_ = std::make_unique<HostStream>(HostStream::Options{.name = "segments' releases"});
  telling_ = true;
  teller_->run([this] {
    base::Limit no_limit(kForever);
    try {
      (void)await(no_limit, nullptr, [this] {
        telling_ = !to_tell_.empty() && !stopped_;
        return !telling_;
      });
    } catch (const Error&) {  // the channel has failed, and needs no releases
      return;
    }
  });
}

void ReceiverEnd::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  wake();
  teller_.reset();
}

std::shared_ptr<Watched> ReceiverEnd::watch(const Range& range) {
  auto watched = std::make_shared<Watched>(Watched{range});
  const std::lock_guard lock(mutex_);
  std::erase_if(watched_, [](const auto& one) { return one.expired(); });
  watched_.push_back(watched);
  return watched;
}

bool ReceiverEnd::ready(const Watched& watched) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    check();
    take_in();
  } catch (const std::exception&) {  // `report` throws it
    return true;
  }
  return all_arrived() || (!watched.reported && arrived_.contains(watched.range));
}

ReceiverEnd::Found ReceiverEnd::report(Watched& watched) {
  const std::lock_guard lock(mutex_);
  check();
  take_in();
  if (!watched.reported && arrived_.contains(watched.range)) {
    watched.reported = true;
    return Found::arrived;
  }
  return all_arrived() ? Found::closed : Found::nothing;
}

}  // namespace sluice::segments
