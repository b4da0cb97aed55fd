// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/by_number.hpp"

#include <algorithm>
#include <functional>

#include "backends/ofi/rma.hpp"

namespace sluice::backends::ofi {
namespace {

std::uint64_t bits(int count) noexcept { return (std::uint64_t{1} << count) - 1; }

std::uint64_t epoch_of(std::uint64_t number, const Manner& manner, std::uint64_t seen) noexcept {
  if (manner.epoch_bits == 0) return seen + 1;
  const std::uint64_t mask = bits(manner.epoch_bits);
  const std::uint64_t ahead = ((number >> manner.index_bits) - seen) & mask;
  return ahead > mask / 2 ? seen : seen + ahead;
}

}  // namespace

// ---- the sender

/// The number of a large put is a write of its own, behind the data: over `tcp`, one write that brings both was slower
/// (docs/results/networks.md).
bool number_goes_behind(const Manner& manner, std::size_t bytes) noexcept {
  constexpr std::size_t kNumberBehind = 1024 * 1024;
  return manner.ordered && bytes >= kNumberBehind;
}

bool RmaPut::post_with_number(Lane& lane, const Message& message) {
  const Manner& manner = station_.manner;
  if (manner.epoch_bits == 0 && !manner.ordered && lane.of(message.epoch - 1).posted)
    return false;  // the number does not name the epoch
  const bool behind = number_goes_behind(manner, message.range.bytes);
  if (behind) {
    if (lane.word_write->posted) return false;  // the last number is on its way
    if (!post_ahead(lane, message)) return false;
  }
  Operation& operation = behind ? *lane.word_write : lane.of(message.epoch);
  const Message signal = behind ? Message{message.epoch, message.part, {}} : message;
  Rider rider;
  if (kHalf.has_room(place_.index, place_.depth)) rider = Rider::of(station_, there_, lane.word, this);
  std::uint64_t number = manner.number(place_.index, message.epoch);
  if (rider.is_there()) number = two_in_one(kHalf.number(place_.index, message.epoch), rider.number(kHalf));
  const Posted posted = write(lane, signal, number, !manner.ordered, operation);
  if (posted == Posted::busy) return false;
  rider.posted(operation);
  if (behind) {
    followed(lane, message.epoch);
  } else if (posted == Posted::over) {
    over(message.epoch);
  }
  return true;
}

/// In order alone: else the credit would complete before it has arrived.
RmaPut::Rider RmaPut::Rider::of(const Station& station, Destination& there, const Remote& to, const RmaPut* but) {
  if (!station.manner.ordered || !station.manner.takes_two()) return {};
  constexpr std::size_t kLooks = 8;  // others wait for the next put
  auto& due = there.due;
  for (std::size_t left = std::min(due.size(), kLooks); left > 0 && !due.empty();) {
    RmaPut* const one = due.front();
    one->due_ = one->is_due();
    if (!one->due_) {  // it has left
      one->due_place_.splice(one->due_place_.end(), due, due.begin());
      continue;
    }
    due.splice(due.end(), due, due.begin());
    if (one != but && one->may_ride(to)) return {one, one->next_along()};  // 0 if that end has failed meanwhile
    --left;
  }
  return {};
}

std::uint64_t RmaPut::Rider::number(const Manner& manner) const noexcept {
  return manner.number(credit_->place_.index, epoch_);
}

void RmaPut::Rider::posted(Operation& with) const noexcept {
  with.rider = 0;
  if (!is_there()) return;
  credit_->posted_along(epoch_);
  with.rider = credit_->place_.index + 1;
}

void RmaPut::Rider::suspect(const Destination& there, const Operation& with, const std::string& why) {
  for (RmaPut* const one : there.riders) {
    if (one->place_.index + 1 == with.rider) one->Mover::suspect(why);
  }
}

/// A put looks only at credits that were rung for, however many channels lead to this peer.
void RmaPut::heard() noexcept {
  if (place_.slot_bytes != 0) return;
  const std::lock_guard lock(station_.mutex);
  if (due_ || !there_.riders.contains(this)) return;
  due_ = true;
  there_.due.splice(there_.due.end(), due_place_);
}

/// A later ring by a GPU's stream or kernel wakes no thread, so a put that awaits one counts as due.
bool RmaPut::is_due() const noexcept { return (pending() != 0 || awaited()) && !Posting::watch_.shut(); }

bool RmaPut::may_ride(const Remote& to) const {
  const Remote& mine = lanes_.front().word;
  return mine.from == to.from && mine.peer == to.peer && !suspicious() && !lost() && next_along() != 0;
}

/// Without bytes, a later epoch says that all before it have arrived.
bool RmaPut::cumulative() const noexcept {
  return place_.slot_bytes == 0 && place_.notice == Notice::number && station_.manner.epoch_bits != 0;
}

// ---- the receiver

std::uint64_t Arrivals::free_index() {
  if (free_.empty()) {
    landings_.emplace_back();
    if (free_.capacity() < landings_.size()) free_.reserve(2 * landings_.size());  // `remove` allocates nothing
    return landings_.size() - 1;
  }
  std::ranges::pop_heap(free_, std::ranges::greater());
  const std::uint64_t index = free_.back();
  free_.pop_back();
  return index;
}

std::uint64_t Arrivals::add(Counters counters) {
  const std::uint64_t index = free_index();
  landings_[index] = std::make_unique<Landing>();
  landings_[index]->counters = counters;
  return index;
}

std::uint64_t Arrivals::add(std::span<const Signal> signals, const Slots& target, const Endpoints& endpoints) {
  const std::uint64_t index = free_index();
  auto& landing = landings_[index] = std::make_unique<Landing>();
  landing->moves_bytes = target.slot_bytes != 0;
  for (const Signal& signal : signals) {
    std::vector<Lane>& lanes = landing->lanes;
    lanes.push_back(
        {signal, endpoints.of(index, lanes.size()), 0, std::vector<bool>(static_cast<std::size_t>(target.depth))});
  }
  return index;
}

void Arrivals::remove(std::uint64_t index, bool is_last) noexcept {
  landings_[index].reset();
  if (!is_last) return;
  free_.push_back(index);
  std::ranges::push_heap(free_, std::ranges::greater());
}

void Arrivals::landed(std::uint64_t number, std::size_t endpoint) noexcept {
  if (!manner_.takes_two() || (number & kTwo) == 0) return landed(number, manner_, endpoint);
  landed(number & bits(kHalfBits), kHalf, endpoint);
  landed(number >> kHalfBits & bits(kHalfBits), kHalf, endpoint);
}

void Arrivals::landed(std::uint64_t number, const Manner& manner, std::size_t endpoint) noexcept {
  const std::uint64_t index = number & bits(manner.index_bits);
  if (index >= landings_.size() || landings_[index] == nullptr) return;  // closed meanwhile: its peer has failed
  Landing& landing = *landings_[index];
  if (const std::uint64_t counter = number >> manner.index_bits; counter < landing.counters.size())
    return base::add_one(landing.counters[counter].word, landing.counters[counter].parking);
  const auto lane = std::ranges::find(landing.lanes, endpoint, &Lane::endpoint);
  if (lane != landing.lanes.end()) land(*lane, epoch_of(number, manner, lane->seen), landing.moves_bytes);
}

void Arrivals::land(Lane& lane, std::uint64_t epoch, bool moves_bytes) noexcept {
  if (epoch <= lane.seen) return;
  if (!moves_bytes) {
    lane.seen = epoch;  // without bytes, a later epoch says that all before it have arrived
  } else {
    lane.early[epoch % lane.early.size()] = true;
    const std::uint64_t before = lane.seen;
    while (lane.early[(lane.seen + 1) % lane.early.size()]) {
      ++lane.seen;
      lane.early[lane.seen % lane.early.size()] = false;
    }
    if (lane.seen == before) return;
  }
  raise_signal(lane.signal, lane.seen);
}

}  // namespace sluice::backends::ofi
