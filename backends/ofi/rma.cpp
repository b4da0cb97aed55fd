// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/rma.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace sluice::backends::ofi {
namespace {

/// Staged data moves in pieces: the next is copied while one is on its way.
constexpr std::size_t kPieceBytes = 512 * 1024;
constexpr std::size_t kPieces = 4;

constexpr auto is_free = [](const auto& operation) { return !operation->posted; };

}  // namespace

RmaPut::RmaPut(Station& station, Destination& there, const Slots& source, device::Watch& watch, const Target& place)
    : EnginePut(watch, place.depth, place.slot_bytes, place.rails), Mover(station, there, watch, "a write"),
      source_(source), place_(place), lanes_(place.rails) {
  const std::lock_guard lock(station.mutex);
  try {
    for (std::size_t i = 0; i < lanes_.size(); ++i) open(i);
  } catch (...) {
    leave();
    lanes_.clear();  // with the mutex
    throw;
  }
  join();
  if (cumulative() && lanes_.size() == 1 && kHalf.has_room(place_.index, place_.depth)) there.riders.insert(this);
}

std::unique_ptr<Operation> RmaPut::new_operation(const Lane& lane, bool piece) {
  auto operation = std::make_unique<Operation>();
  operation->lane = lane.number;
  operation->piece = piece;
  lane.rail->know(*operation, *this);
  return operation;
}

void RmaPut::open(std::size_t number) {
  Lane& lane = lanes_[number];
  const Place::OfRail& there = place_.rail[number];
  const Route& route = there_.route(there.endpoint);
  lane.number = number;
  lane.route = &route;
  lane.rail = route.rail;
  lane.word = {route.from, route.address, there.word};
  lane.flushes = {route.from, route.address, route.flushes};
  lane.operations.resize(static_cast<std::size_t>(place_.depth));
  lane.early.resize(lane.operations.size());
  lane.piece_bytes = lane.rail->largest_message();
  if (source_.memory.bytes != 0) lane.source = lane.rail->registered_if_reached(source_.memory);
  if (place_.staged || (source_.memory.bytes != 0 && lane.source == nullptr)) {
    const std::size_t whole = source_.slot_bytes + (place_.staged ? StageHeader::kBytes : 0);
    // An epoch is one write where writes are counted.
    if (place_.notice != Notice::counter) lane.piece_bytes = std::min({lane.piece_bytes, whole, kPieceBytes});
    lane.stage = std::make_shared<Stage>(*lane.rail, std::min(whole, lane.piece_bytes), kPieces, source_.memory);
  }
  lane.pieces.resize(kPieces);
  for (auto& operation : lane.operations) operation = new_operation(lane);
  for (auto& operation : lane.pieces) operation = new_operation(lane, true);
  lane.word_write = new_operation(lane);
  lane.flush_write = new_operation(lane);
  if (place_.notice == Notice::word) lane.word_source = lane.rail->registered(extent_of(lane.word_write->value));
}

RmaPut::~RmaPut() {
  const std::lock_guard lock(station_.mutex);
  there_.riders.erase(this);
  if (due_) there_.due.erase(due_at_);
  for (Lane& lane : lanes_) orphan_posted(lane);
  leave();
  lanes_.clear();  // with the mutex
}

/// The operation is under way, and belongs to the station from now on, with what it reads.
void RmaPut::orphan(const Lane& lane, std::unique_ptr<Operation>& operation) {
  if (!operation->posted) return;
  lane.rail->give_up(*operation);
  station_.orphans.push_back(std::exchange(operation, new_operation(lane, operation->piece)));
  if (lane.source != nullptr) lane.rail->disown(*lane.source);
  station_.orphaned_memory.insert(station_.orphaned_memory.end(), {lane.source, lane.word_source, lane.stage});
}

void RmaPut::orphan_posted(Lane& lane) {
  for (auto& operation : lane.operations) orphan(lane, operation);
  for (auto& operation : lane.pieces) orphan(lane, operation);
  orphan(lane, lane.word_write);
  orphan(lane, lane.flush_write);
}

/// A message is cut into shares of whole lines, none of them tiny.
Range RmaPut::share(std::size_t rail, std::size_t bytes) const noexcept {
  constexpr std::size_t kLeast = 256;
  if (lanes_.size() == 1) return {0, bytes};
  const std::size_t even = (bytes + lanes_.size() - 1) / lanes_.size();
  const std::size_t size = std::max(kLeast, whole_lines(even));
  const std::size_t begin = std::min(rail * size, bytes);
  return {begin, std::min(size, bytes - begin)};
}

bool RmaPut::post(std::size_t rail, std::uint64_t epoch, Range part) {
  const std::lock_guard lock(station_.mutex);
  Lane& lane = lanes_[rail];
  if (suspicious() || lost()) return false;  // no epoch may pass one that was lost
  return attempt(lane.refused, *lane.route, [&] {
    Message message{epoch, part, share(rail, part.bytes + (place_.staged ? StageHeader::kBytes : 0))};
    if (message.range.bytes > lane.piece_bytes && !post_pieces(lane, message)) return false;
    return post_last(lane, message);
  });
}

/// Posts all pieces but the last, which it leaves in `message`. The last piece brings the signal, so it waits until the
/// others have completed; where writes are not in order, they complete when they are delivered.
bool RmaPut::post_pieces(Lane& lane, Message& message) {
  if (lane.cut.epoch != message.epoch) lane.cut = message;
  message = lane.cut;
  while (message.range.bytes > lane.piece_bytes) {
    const auto piece = std::ranges::find_if(lane.pieces, is_free);
    if (piece == lane.pieces.end()) return false;
    const Message next{message.epoch, message.part, {message.range.offset, lane.piece_bytes}};
    if (write(lane, next, {}, !station_.manner.ordered, **piece) == Posted::busy) return false;
    lane.refused.end();
    message.range = {message.range.offset + lane.piece_bytes, message.range.bytes - lane.piece_bytes};
    lane.cut = message;
  }
  return std::ranges::all_of(lane.pieces, is_free);
}

bool RmaPut::at_rest(std::size_t rail) {
  const std::lock_guard lock(station_.mutex);
  const Lane& lane = lanes_[rail];
  const bool data_without_signal = lane.signal_due != 0 && lane.of(lane.signal_due).posted;
  return !data_without_signal && (lane.stage == nullptr || lane.stage->copied(watch())) &&
         std::ranges::all_of(lane.pieces, is_free);
}

bool RmaPut::post_last(Lane& lane, const Message& message) {
  if (place_.notice == Notice::number) return post_with_number(lane, message);
  // A counted write completes when it is delivered: a flush would be counted too.
  if (place_.notice == Notice::counter) return write(lane, message, {}, true, lane.of(message.epoch)) != Posted::busy;
  return station_.manner.ordered ? post_then_word(lane, message) : post_delivered(lane, message);
}

/// In order: posts the data that the signal follows. Once an epoch, however often the signal is refused.
bool RmaPut::post_ahead(Lane& lane, const Message& message) {
  if (lane.signal_due == message.epoch) return true;
  if (message.range.bytes != 0 && write(lane, message, {}, false, lane.of(message.epoch)) == Posted::busy) return false;
  lane.signal_due = message.epoch;
  return true;
}

/// The signal was posted behind its data.
void RmaPut::followed(Lane& lane, std::uint64_t epoch) {
  lane.signal_due = 0;
  if (!lane.of(epoch).posted) over(epoch);  // the source was read already
}

Posted RmaPut::write(Lane& lane, const Message& message, std::optional<std::uint64_t> number, bool delivered,
                     Operation& operation) {
  operation.epoch = message.epoch;
  operation.rider = 0;
  Remote to{lane.word.from, lane.word.peer, place_.slot_of(message.epoch, lane.number)};
  to.spot.address += message.range.offset + (place_.staged ? 0 : message.part.offset);
  if (message.range.bytes == 0) {
    const auto* const nothing = reinterpret_cast<const std::byte*>(&place_);
    return lane.rail->write({.data = nothing}, to, number, delivered, operation);
  }
  if (lane.stage == nullptr) {
    const std::byte* const from = source_.at(message.epoch) + message.part.offset + message.range.offset;
    return lane.rail->write({from, message.range.bytes, lane.source->desc(), lane.source->of_gpu}, to, number,
                            delivered, operation);
  }
  const auto [room, filled] = lane.stage->room(message.epoch, message.range.offset);
  if (room == nullptr) return Posted::busy;
  if (!filled) fill(*lane.stage, room, message);
  if (!lane.stage->copied(watch()) || watch().failed()) return Posted::busy;
  const Posted posted =
      lane.rail->write({room, message.range.bytes, lane.stage->desc()}, to, number, delivered, operation);
  if (posted != Posted::busy) lane.stage->sent(operation);
  return posted;
}

/// Copies the message into staging memory, and writes the header in front of its first piece.
void RmaPut::fill(Stage& stage, std::byte* room, const Message& message) {
  std::size_t at = message.range.offset;
  std::size_t bytes = message.range.bytes;
  if (place_.staged) {
    if (at == 0) {
      const StageHeader header{message.part.offset, message.part.bytes};
      std::memcpy(room, &header, sizeof header);
      room += StageHeader::kBytes;
      bytes -= StageHeader::kBytes;
    } else {
      at -= StageHeader::kBytes;
    }
  }
  const std::byte* const from = source_.at(message.epoch) + message.part.offset + at;
  if (bytes != 0) stage.copy(watch(), room, from, bytes);
}

bool RmaPut::uses(const Route& route) const noexcept { return std::ranges::count(lanes_, &route, &Lane::route) != 0; }

std::size_t RmaPut::bytes_under_way() const {
  const auto posted = [](const Operations& all) {
    return static_cast<std::size_t>(std::ranges::count_if(all, [](const auto& one) { return one->posted; }));
  };
  std::size_t bytes = 0;
  for (const Lane& lane : lanes_)
    bytes += posted(lane.operations) * std::min<std::size_t>(lane.piece_bytes, place_.slot_bytes) +
             posted(lane.pieces) * lane.piece_bytes;
  return bytes;
}

bool RmaPut::attend() {
  if (gives_up()) {
    for (Lane& lane : lanes_) give_up(lane);
    flushes_left_ = 0;
    gave_up_ = true;
  }
  const bool flushes_left = post_flushes();
  if (watch().failed()) {
    for (Lane& lane : lanes_) {
      if (!lane.word_write->posted) abandon_words(lane);
    }
    return flushes_left;
  }
  if (!suspicious()) return (has_words_to_follow() && write_words()) || flushes_left;
  judge();
  return true;
}

/// `ended`, `suspect` and requests for a flush call `attend_to` again.
bool RmaPut::rests() const {
  if ((suspicious() && !Posting::watch_.failed()) || (lost() && !gave_up_)) return false;
  return std::ranges::none_of(lanes_, [](const Lane& lane) {
    const bool word_due = lane.delivered != lane.written || std::ranges::count(lane.early, true) != 0;
    return lane.flush_due || word_due;
  });
}

/// Operations that wait for an answer of a dead peer never end.
void RmaPut::give_up(Lane& lane) {
  for (const auto& operation : lane.operations) {
    if (operation->posted && lane.signal_due != operation->epoch)
      lane.early[operation->epoch % lane.early.size()] = true;
  }
  orphan_posted(lane);
  lane.flush_due = false;
  abandon_words(lane);
}

void RmaPut::ended(Operation& operation, const std::string& why_not) {
  Lane& lane = lanes_[operation.lane];
  if (lane.flush_write.get() == &operation)
    return end_flush(why_not.empty() ? why_not : failure_of(*lane.route, why_not));
  if (!why_not.empty()) {
    const std::string why = failure_of(*lane.route, why_not);
    suspect(why);
    Rider::suspect(there_, operation, why);
  }
  if (lane.word_write.get() == &operation) {
    while (lane.written < lane.writing) over(++lane.written);
  } else if (operation.piece || lane.signal_due == operation.epoch) {
    return;  // the epoch ends with what follows
  } else if (suspicious()) {
    lane.early[operation.epoch % lane.early.size()] = true;  // its end waits for the verdict
    station_.attend_to(*this);
  } else if (!has_words_to_follow() || watch().failed()) {
    over(operation.epoch);
  } else {
    arrived(lane, operation.epoch);
  }
}

std::string RmaPut::describe() const {
  std::string text = station_.provider + ": written into the target";
  if (lanes_.size() > 1) text += " over " + std::to_string(lanes_.size()) + " rails";
  if (lanes_.front().stage != nullptr)
    text += ", staged in pieces of " + std::to_string(lanes_.front().piece_bytes) + " bytes";
  if (place_.notice == Notice::counter) return text + ", where arrivals are counted";
  if (place_.notice == Notice::word) return text + ", then the signal by a second write";
  const std::size_t largest = std::min(lanes_.front().piece_bytes, share(0, place_.slot_bytes).bytes);
  return text + (number_goes_behind(station_.manner, largest) ? ", then a number that raises the signal"
                                                              : ", with a number that raises the signal");
}

}  // namespace sluice::backends::ofi
