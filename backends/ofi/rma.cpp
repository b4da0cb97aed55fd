// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/rma.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "base/seeded.hpp"

namespace sluice::backends::ofi {

using base::seeded;

namespace {

Remote remote(const Route& route, std::uint64_t address, std::uint64_t key) { return {route.address, address, key}; }

device::Extent word_of(WordWrite& write) {
  return {reinterpret_cast<std::byte*>(&write.value), sizeof write.value, nullptr};
}

}  // namespace

RmaLanding::RmaLanding(Station& station, const Slots& target, std::span<const Signal> signals)
    : station_(station), signals_(signals.begin(), signals.end()) {
  const std::lock_guard lock(station.mutex);
  const std::size_t endpoints = station.rails.size();
  place_.index = station.arrivals.add(signals_, target);
  place_.slot_bytes = target.slot_bytes;
  place_.depth = target.depth;
  place_.rails = static_cast<std::uint32_t>(signals_.size());
  place_.notice = station.manner.has_room(place_.index, target.depth) ? Notice::data : Notice::word;
  for (std::size_t i = 0; i < signals_.size(); ++i) {
    const std::size_t endpoint = endpoint_of(place_.index, i, endpoints);
    Rail& rail = *station.rails[endpoint];
    const auto word = rail.registered(signals_[i].memory);
    const auto slots = target.memory.bytes == 0 ? word : rail.registered(target.memory);
    const auto* const at = reinterpret_cast<const std::byte*>(signals_[i].word);
    place_.rail[i] = {static_cast<std::uint32_t>(endpoint),
                      target.memory.bytes == 0 ? word->address(at) : slots->address(target.memory.data), slots->key(),
                      word->address(at), word->key()};
    registered_.insert(registered_.end(), {word, slots});
    if (place_.notice == Notice::word) station.written_words.push_back({&signals_[i], 0});
  }
}

RmaLanding::~RmaLanding() {
  const std::lock_guard lock(station_.mutex);
  station_.arrivals.remove(place_.index);
  std::erase_if(station_.written_words, [&](const WrittenWord& written) {
    return std::any_of(signals_.begin(), signals_.end(), [&](const Signal& one) { return &one == written.signal; });
  });
  registered_.clear();
}

Key RmaLanding::key() const {
  Key key;
  key.bytes.resize(sizeof place_);
  std::memcpy(key.bytes.data(), &place_, sizeof place_);
  return key;
}

std::string RmaLanding::describe() const {
  std::string text = station_.provider + ": lands in the target itself";
  if (place_.notice == Notice::word) return text + "; the peer writes the signal too";
  return text + "; the engine raises the signal for the number that comes with it";
}

RmaPut::RmaPut(Station& station, const Routes& routes, const Slots& source, device::Watch& watch, const Place& place)
    : EnginePut(watch, place.depth, place.rails), station_(station), source_(source), place_(place),
      lanes_(place.rails) {
  const std::lock_guard lock(station.mutex);
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    const Place::OfRail& there = place.rail[i];
    const Route& route = routes.at(there.endpoint);
    Lane& lane = lanes_[i];
    lane.rail = route.rail;
    if (source.slot_bytes > lane.rail->info().ep_attr->max_msg_size)
      throw std::runtime_error("a slot is larger than a message of this provider may be");
    if (source.memory.bytes != 0) lane.source = lane.rail->registered(source.memory);
    lane.slots = remote(route, there.slots, there.slots_key);
    lane.word = remote(route, there.word, there.word_key);
    lane.operations.resize(static_cast<std::size_t>(place.depth));
    lane.early.resize(lane.operations.size());
    for (Operation& operation : lane.operations) operation.owner = this;
    lane.extra->owner = this;
    if (place.notice == Notice::word) lane.extra_source = lane.rail->registered(word_of(*lane.extra));
    lane.rail->know(*this);
  }
  if (has_words_to_follow()) station.attended.push_back(this);
}

RmaPut::~RmaPut() {
  const std::lock_guard lock(station_.mutex);
  std::erase(station_.attended, this);
  for (Lane& lane : lanes_) {
    lane.rail->forget(*this);
    lane.source.reset();
    lane.extra_source.reset();
    lane.extra->owner = nullptr;
    if (lane.extra->posted) station_.orphans.push_back(std::move(lane.extra));
  }
}

/// A part is cut into pieces of whole lines, none of them tiny.
Range RmaPut::share(std::size_t rail, Range part) const noexcept {
  constexpr std::size_t kLeast = 256;
  constexpr std::size_t kLine = 64;
  const std::size_t even = (part.bytes + lanes_.size() - 1) / lanes_.size();
  const std::size_t piece = std::max(kLeast, (even + kLine - 1) / kLine * kLine);
  const std::size_t begin = std::min(rail * piece, part.bytes);
  return {part.offset + begin, std::min(piece, part.bytes - begin)};
}

bool RmaPut::post(std::size_t rail, std::uint64_t epoch, Range part) {
  const std::lock_guard lock(station_.mutex);
  Lane& lane = lanes_[rail];
  if (!broken_.empty()) return false;  // no epoch may pass one that was lost
  try {
    part = share(rail, part);
    if (place_.notice == Notice::data) return post_with_number(lane, epoch, part);
    if (place_.notice == Notice::counter) return post_counted(lane, epoch, part);
    const bool ordered = station_.manner.ordered || seeded("word_before_delivery");
    return ordered ? post_then_word(lane, epoch, part) : post_delivered(lane, epoch, part);
  } catch (const std::runtime_error& reason) {
    suspect(reason.what());
    return false;
  }
}

bool RmaPut::post_with_number(Lane& lane, std::uint64_t epoch, Range part) {
  const Manner& manner = station_.manner;
  const auto& last = lane.operations[(epoch - 1) % lane.operations.size()];
  if (manner.epoch_bits == 0 && !manner.ordered && last.posted && !seeded("unnamed_epochs_at_once"))
    return false;  // the number does not name the epoch
  const Posted posted = write(lane, epoch, part, manner.number(place_.index, epoch), !manner.ordered);
  if (posted == Posted::over || (posted == Posted::under_way && seeded("over_when_posted"))) over(epoch);
  return posted != Posted::busy;
}

/// Over when it is delivered: a flush would be counted too.
bool RmaPut::post_counted(Lane& lane, std::uint64_t epoch, Range part) {
  return write(lane, epoch, part, {}, true) != Posted::busy;
}

bool RmaPut::post_then_word(Lane& lane, std::uint64_t epoch, Range part) {
  if (lane.word_due != epoch) {
    if (part.bytes != 0 && write(lane, epoch, part, {}, false) == Posted::busy) return false;
    lane.word_due = epoch;
  }
  if (write_word(lane, epoch, false) == Posted::busy) return false;
  lane.word_due = 0;
  if (!lane.operations[epoch % lane.operations.size()].posted) over(epoch);  // the source was read already
  return true;
}

bool RmaPut::post_delivered(Lane& lane, std::uint64_t epoch, Range part) {
  if (part.bytes == 0) {
    arrived(lane, epoch);
    return true;
  }
  return write(lane, epoch, part, {}, true) != Posted::busy;
}

Posted RmaPut::write(Lane& lane, std::uint64_t epoch, Range part, std::optional<std::uint64_t> number, bool delivered) {
  Operation& operation = lane.operations[epoch % lane.operations.size()];
  operation.epoch = epoch;
  Remote to = lane.slots;
  to.address += place_.slot_bytes * (epoch % static_cast<std::uint64_t>(place_.depth)) + part.offset;
  const std::byte* from =
      part.bytes == 0 ? reinterpret_cast<const std::byte*>(&place_) : source_.at(epoch) + part.offset;
  return lane.rail->write(from, part.bytes, lane.source == nullptr ? nullptr : lane.source->desc(), to, number,
                          delivered, operation);
}

Posted RmaPut::write_word(Lane& lane, std::uint64_t epoch, bool delivered) {
  WordWrite& word = *lane.extra;
  if (word.posted) return Posted::busy;  // the last one is still read
  word.value = epoch;
  return lane.rail->write(word_of(word).data, sizeof word.value, lane.extra_source->desc(), lane.word, {}, delivered,
                          word);
}

/// Unordered: the data of `epoch` is in place. Its word may be written once that of all before it is.
void RmaPut::arrived(Lane& lane, std::uint64_t epoch) {
  lane.early[epoch % lane.early.size()] = true;
  while (lane.early[(lane.delivered + 1) % lane.early.size()]) {
    ++lane.delivered;
    lane.early[lane.delivered % lane.early.size()] = false;
  }
}

/// Writes to a peer that has died fail before its death is noticed. So the failure of the channel waits a moment for
/// the better reason.
void RmaPut::suspect(const std::string& why) {
  constexpr auto kMoment = std::chrono::seconds(1);
  if (!broken_.empty()) return;
  broken_ = why;
  verdict_ = base::Clock::now() + kMoment;
  if (!has_words_to_follow()) station_.attended.push_back(this);
}

bool RmaPut::attend() {
  if (watch().failed()) {
    for (Lane& lane : lanes_) {
      if (!lane.extra->posted) abandon(lane);
    }
    return false;
  }
  if (broken_.empty()) return has_words_to_follow() && write_words();
  if (base::Clock::now() >= verdict_) watch().fail(Code::transport, broken_);
  return true;
}

bool RmaPut::write_words() {
  bool left = false;
  for (Lane& lane : lanes_) {
    if (lane.extra->posted || lane.delivered == lane.written) continue;
    lane.writing = lane.delivered;
    left |= write_word(lane, lane.writing, true) == Posted::busy;
  }
  return left;
}

/// What still waits for its end, ends: nothing follows it any more. A word after data that has failed would be
/// believed.
void RmaPut::abandon(Lane& lane) {
  while (lane.written < lane.delivered) over(++lane.written);
  for (std::uint64_t epoch = lane.delivered + 1; epoch <= lane.delivered + lane.early.size(); ++epoch) {
    if (lane.early[epoch % lane.early.size()]) over(epoch);
    lane.early[epoch % lane.early.size()] = false;
  }
}

void RmaPut::ended(Operation& operation, const std::string& why_not) {
  const auto lane = std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& one) { return one.owns(operation); });
  if (lane->extra.get() == &operation && flushes_left_ > 0 && !lane->flush_due) {
    if (--flushes_left_ == 0) flushed_ = flushing_;  // also if it failed: the peer is out of reach
    return;
  }
  if (!why_not.empty()) suspect("a write over " + station_.provider + " failed: " + why_not);
  if (lane->extra.get() == &operation) {
    while (lane->written < lane->writing) over(++lane->written);
  } else if (!broken_.empty()) {
    lane->early[operation.epoch % lane->early.size()] = true;  // its end waits for the verdict
  } else if (!has_words_to_follow() || watch().failed()) {
    if (lane->word_due != operation.epoch && !seeded("over_when_posted")) over(operation.epoch);
  } else {
    arrived(*lane, operation.epoch);
  }
}

bool RmaPut::failed(void* context, const std::string& why) {
  for (Lane& lane : lanes_) {
    const auto is = [&](const Operation& one) { return &one.context == context && one.posted; };
    const auto found = std::find_if(lane.operations.begin(), lane.operations.end(), is);
    if (found == lane.operations.end() && !is(*lane.extra)) continue;
    lane.rail->end(found == lane.operations.end() ? *lane.extra : *found, why);
    return true;
  }
  return false;
}

/// By writes of no bytes that are over once they are delivered, and so is all before them.
bool RmaPut::settled() {
  const std::lock_guard lock(station_.mutex);
  const std::uint64_t done = watch().done.value.load(std::memory_order_acquire);
  const bool delivered = !station_.manner.ordered || place_.notice == Notice::counter;  // what is over is
  if (delivered || flushed_ >= done) return true;
  if (flushes_left_ == 0) {
    flushing_ = done;
    flushes_left_ = lanes_.size();
    for (Lane& lane : lanes_) lane.flush_due = true;
  }
  for (Lane& lane : lanes_) flush(lane);
  return false;
}

void RmaPut::flush(Lane& lane) {
  if (!lane.flush_due || lane.extra->posted) return;
  try {
    const auto* const nothing = reinterpret_cast<const std::byte*>(&place_);
    lane.flush_due = lane.rail->write(nothing, 0, nullptr, lane.word, {}, true, *lane.extra) == Posted::busy;
  } catch (const std::runtime_error&) {
    lane.flush_due = false;
    if (--flushes_left_ == 0) flushed_ = flushing_;
  }
}

std::string RmaPut::describe() const {
  std::string text = station_.provider + ": written into the target";
  if (lanes_.size() > 1) text += " over " + std::to_string(lanes_.size()) + " rails";
  if (place_.notice == Notice::counter) return text + ", where arrivals are counted";
  return text + (place_.notice == Notice::word ? ", then the signal by a second write"
                                               : ", with a number that raises the signal");
}

}  // namespace sluice::backends::ofi
