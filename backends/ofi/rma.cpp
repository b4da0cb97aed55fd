// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/rma.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace sluice::backends::ofi {

namespace {

/// Of what is staged: the next is copied while one is on its way.
constexpr std::size_t kPieceBytes = 512 * 1024;
constexpr std::size_t kPieces = 4;

/// From here on the number goes behind the data: over `tcp`, one write that brings both was slower
/// (docs/results/networks.md).
constexpr std::size_t kNumberBehind = 1024 * 1024;

device::Extent word_of(Operation& write) {
  return {reinterpret_cast<std::byte*>(&write.value), sizeof write.value, nullptr};
}

}  // namespace

RmaPut::RmaPut(Station& station, Destination& there, const Slots& source, device::Watch& watch, const Target& place)
    : EnginePut(watch, place.depth, place.slot_bytes, place.rails), station_(station), there_(there), source_(source),
      place_(place), lanes_(place.rails) {
  const std::lock_guard lock(station.mutex);
  try {
    for (std::size_t i = 0; i < lanes_.size(); ++i) open(lanes_[i], there.route(place.rail[i].endpoint), place.rail[i]);
  } catch (...) {
    lanes_.clear();  // with the mutex
    throw;
  }
  for (const Lane& lane : lanes_) lane.rail->know(*this);
  there.know(*this);
  if (cumulative() && lanes_.size() == 1 && half().has_room(place_.index, place_.depth)) there.riders.push_back(this);
  if (has_words_to_follow()) station_.attend_to(*this);
}

std::unique_ptr<Operation> RmaPut::new_operation() {
  auto operation = std::make_unique<Operation>();
  operation->owner = this;
  return operation;
}

void RmaPut::open(Lane& lane, const Route& route, const Place::OfRail& there) {
  lane.route = &route;
  lane.rail = route.rail;
  lane.word = {route.from, route.address, there.word, there.word_key};
  lane.flushes = {route.from, route.address, route.flushes, route.flushes_key};
  lane.operations.resize(static_cast<std::size_t>(place_.depth));
  lane.early.resize(lane.operations.size());
  lane.piece_bytes = lane.rail->largest_message();
  if (source_.memory.bytes != 0) lane.source = lane.rail->registered_if_reached(source_.memory);
  if (place_.staged || (source_.memory.bytes != 0 && lane.source == nullptr)) {
    const std::size_t whole = source_.slot_bytes + (place_.staged ? StageHeader::kBytes : 0);
    // Where writes are counted, an epoch is one.
    if (place_.notice != Notice::counter) lane.piece_bytes = std::min({lane.piece_bytes, whole, kPieceBytes});
    lane.stage = std::make_shared<Stage>(*lane.rail, std::min(whole, lane.piece_bytes), kPieces, source_.memory);
  }
  lane.pieces.resize(kPieces);
  for (auto& operation : lane.operations) operation = new_operation();
  for (auto& operation : lane.pieces) operation = new_operation();
  lane.word_write = new_operation();
  lane.flush_write = new_operation();
  if (place_.notice == Notice::word) lane.word_source = lane.rail->registered(word_of(*lane.word_write));
}

RmaPut::~RmaPut() {
  const std::lock_guard lock(station_.mutex);
  std::erase(station_.attended, static_cast<Attended*>(this));
  there_.forget(*this);
  std::erase(there_.riders, this);
  for (Lane& lane : lanes_) {
    lane.rail->forget(*this);
    leave(lane, lane.operations);
    leave(lane, lane.pieces);
    if (lane.word_write->posted) leave(lane, lane.word_write);
    if (lane.flush_write->posted) leave(lane, lane.flush_write);
  }
  lanes_.clear();  // with the mutex
}

/// It is not this put's any more.
void RmaPut::leave(const Lane& lane, std::unique_ptr<Operation>& operation) {
  lane.rail->give_up(*operation);
  station_.orphans.push_back(std::exchange(operation, new_operation()));
  if (lane.source != nullptr) lane.rail->disown(*lane.source);
  station_.orphaned_memory.insert(station_.orphaned_memory.end(), {lane.source, lane.word_source, lane.stage});
}

void RmaPut::leave(const Lane& lane, Operations& operations) {
  for (auto& operation : operations) {
    if (operation->posted) leave(lane, operation);
  }
}

/// A message is cut into shares of whole lines, none of them tiny.
Range RmaPut::share(std::size_t rail, std::size_t bytes) const noexcept {
  constexpr std::size_t kLeast = 256;
  constexpr std::size_t kLine = 64;
  if (lanes_.size() == 1) return {0, bytes};
  const std::size_t even = (bytes + lanes_.size() - 1) / lanes_.size();
  const std::size_t size = std::max(kLeast, (even + kLine - 1) / kLine * kLine);
  const std::size_t begin = std::min(rail * size, bytes);
  return {begin, std::min(size, bytes - begin)};
}

bool RmaPut::post(std::size_t rail, std::uint64_t epoch, Range part) {
  const std::lock_guard lock(station_.mutex);
  Lane& lane = lanes_[rail];
  if (!suspicion_.none() || loss_.raised()) return false;  // no epoch may pass one that was lost
  try {
    Message message{epoch, part, share(rail, part.bytes + (place_.staged ? StageHeader::kBytes : 0))};
    if (message.range.bytes > lane.piece_bytes && !post_pieces(lane, message)) return false;
    if (!post_last(lane, message)) return false;
    lane.refused.end();
    return true;
  } catch (const std::runtime_error& reason) {
    refused(lane, reason.what());
    return false;
  }
}

/// All but the last, which brings the signal: it goes once the others are over, and where writes are not in order that
/// means delivered. Leaves it in `message`.
bool RmaPut::post_pieces(Lane& lane, Message& message) {
  if (lane.cut.epoch != message.epoch) lane.cut = message;
  message = lane.cut;
  const auto is_free = [](const auto& piece) { return !piece->posted; };
  while (message.range.bytes > lane.piece_bytes) {
    const auto piece = std::find_if(lane.pieces.begin(), lane.pieces.end(), is_free);
    if (piece == lane.pieces.end()) return false;
    const Message next{message.epoch, message.part, {message.range.offset, lane.piece_bytes}};
    if (write(lane, next, {}, !station_.manner.ordered, **piece) == Posted::busy) return false;
    lane.refused.end();
    message.range = {message.range.offset + lane.piece_bytes, message.range.bytes - lane.piece_bytes};
    lane.cut = message;
  }
  return std::all_of(lane.pieces.begin(), lane.pieces.end(), is_free);
}

bool RmaPut::at_rest(std::size_t rail) {
  const std::lock_guard lock(station_.mutex);
  const Lane& lane = lanes_[rail];
  const auto& pieces = lane.pieces;
  const bool data_without_signal = lane.signal_due != 0 && lane.of(lane.signal_due)->posted;
  return !data_without_signal && (lane.stage == nullptr || lane.stage->copied(watch())) &&
         std::none_of(pieces.begin(), pieces.end(), [](const auto& piece) { return piece->posted; });
}

bool RmaPut::post_last(Lane& lane, const Message& message) {
  if (place_.notice == Notice::data) return post_with_number(lane, message);
  if (place_.notice == Notice::counter) return post_counted(lane, message);
  return station_.manner.ordered ? post_then_word(lane, message) : post_delivered(lane, message);
}

bool RmaPut::post_with_number(Lane& lane, const Message& message) {
  const Manner& manner = station_.manner;
  if (manner.epoch_bits == 0 && !manner.ordered && lane.of(message.epoch - 1)->posted)
    return false;  // the number does not name the epoch
  const bool behind = manner.ordered && message.range.bytes >= kNumberBehind;
  if (behind) {
    if (lane.word_write->posted) return false;  // the last number is on its way
    if (!post_ahead(lane, message)) return false;
  }
  Operation& operation = behind ? *lane.word_write : *lane.of(message.epoch);
  const Message signal = behind ? Message{message.epoch, message.part, {}} : message;
  RmaPut* const with = rider(lane);
  const std::uint64_t epoch_with = with == nullptr ? 0 : with->next_along();  // 0 if that end has failed meanwhile
  std::uint64_t number = manner.number(place_.index, message.epoch);
  if (epoch_with != 0) {
    const std::uint64_t credit = half().number(with->place_.index, epoch_with);
    number = two_in_one(half().number(place_.index, message.epoch), credit);
  }
  const Posted posted = write(lane, signal, number, !manner.ordered, operation);
  if (posted == Posted::busy) return false;
  if (epoch_with != 0) {
    with->posted_along(epoch_with);
    operation.rider = with->place_.index + 1;
  }
  if (behind) {
    followed(lane, message.epoch);
  } else if (posted == Posted::over) {
    over(message.epoch);
  }
  return true;
}

/// What moves no bytes and is for the same endpoint of the peer. In order alone: else it would be over before it has
/// arrived.
RmaPut* RmaPut::rider(const Lane& lane) const {
  const Manner& manner = station_.manner;
  if (!manner.ordered || !manner.takes_two() || !half().has_room(place_.index, place_.depth)) return nullptr;
  const auto one = std::find_if(there_.riders.begin(), there_.riders.end(),
                                [&](const RmaPut* other) { return other != this && other->may_ride(lane); });
  return one == there_.riders.end() ? nullptr : *one;
}

bool RmaPut::may_ride(const Lane& lane) const {
  const Remote& mine = lanes_.front().word;
  return mine.from == lane.word.from && mine.peer == lane.word.peer && suspicion_.none() && !loss_.raised() &&
         next_along() != 0;
}

/// No bytes: a later epoch says that all before it are over.
bool RmaPut::cumulative() const noexcept {
  return place_.slot_bytes == 0 && place_.notice == Notice::data && station_.manner.epoch_bits != 0;
}

/// Over when it is delivered: a flush would be counted too.
bool RmaPut::post_counted(Lane& lane, const Message& message) { return write(lane, message, {}, true) != Posted::busy; }

bool RmaPut::post_then_word(Lane& lane, const Message& message) {
  if (!post_ahead(lane, message) || write_word(lane, message.epoch, false) == Posted::busy) return false;
  followed(lane, message.epoch);
  return true;
}

/// In order: what the signal goes behind. Once an epoch, however often the signal is refused.
bool RmaPut::post_ahead(Lane& lane, const Message& message) {
  if (lane.signal_due == message.epoch) return true;
  if (message.range.bytes != 0 && write(lane, message, {}, false) == Posted::busy) return false;
  lane.signal_due = message.epoch;
  return true;
}

/// The signal has gone behind.
void RmaPut::followed(Lane& lane, std::uint64_t epoch) {
  lane.signal_due = 0;
  if (!lane.of(epoch)->posted) over(epoch);  // the source was read already
}

bool RmaPut::post_delivered(Lane& lane, const Message& message) {
  if (message.range.bytes == 0) {
    arrived(lane, message.epoch);
    return true;
  }
  return write(lane, message, {}, true) != Posted::busy;
}

Posted RmaPut::write(Lane& lane, const Message& message, std::optional<std::uint64_t> number, bool delivered) {
  return write(lane, message, number, delivered, *lane.of(message.epoch));
}

Posted RmaPut::write(Lane& lane, const Message& message, std::optional<std::uint64_t> number, bool delivered,
                     Operation& operation) {
  operation.epoch = message.epoch;
  operation.rider = 0;
  const auto rail = static_cast<std::size_t>(&lane - lanes_.data());
  Remote to{lane.word.from, lane.word.peer, place_.address(rail, message.epoch) + message.range.offset,
            place_.key(rail, message.epoch)};
  if (!place_.staged) to.address += message.part.offset;
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

/// With the header, if it begins there.
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

Posted RmaPut::write_word(Lane& lane, std::uint64_t epoch, bool delivered) {
  Operation& word = *lane.word_write;
  if (word.posted) return Posted::busy;  // the last one is still read
  word.value = epoch;
  return lane.rail->write({word_of(word).data, sizeof word.value, lane.word_source->desc()}, lane.word, {}, delivered,
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

/// The loss of the peer ends that too.
void RmaPut::refused(Lane& lane, const std::string& why) {
  if (lane.refused.last(station_.patience)) suspect(failure_of(lane, why));
}

std::string RmaPut::failure_of(const Lane& lane, const std::string& why) const {
  return "a write over " + station_.provider + " from " + lane.route->text + " failed: " + why + " (" + kChosenBy + ")";
}

void RmaPut::suspect(const std::string& why) {
  if (!suspicion_.none() || loss_.raised()) return;
  suspicion_.raise(why);
  station_.attend_to(*this);
}

void RmaPut::peer_lost() {
  loss_.raise();
  station_.attend_to(*this);
}

void RmaPut::path_lost(const Route& route, const std::string& why) {
  if (std::none_of(lanes_.begin(), lanes_.end(), [&](const Lane& lane) { return lane.route == &route; })) return;
  watch().fail(Code::transport, why);
  peer_lost();  // as far as this put goes
}

std::size_t RmaPut::bytes_under_way() const {
  const auto posted = [](const auto& operation) { return operation->posted; };
  std::size_t bytes = 0;
  for (const Lane& lane : lanes_) {
    const auto whole = static_cast<std::size_t>(std::ranges::count_if(lane.operations, posted));
    const auto pieces = static_cast<std::size_t>(std::ranges::count_if(lane.pieces, posted));
    bytes += whole * std::min<std::size_t>(lane.piece_bytes, place_.slot_bytes) + pieces * lane.piece_bytes;
  }
  return bytes;
}

bool RmaPut::attend() {
  if (loss_.over()) {
    for (Lane& lane : lanes_) give_up(lane);
    flushes_left_ = 0;
  }
  bool left = post_flushes();
  if (watch().failed()) {
    for (Lane& lane : lanes_) {
      if (!lane.word_write->posted) abandon(lane);
    }
    return left;
  }
  if (suspicion_.none()) {
    if (has_words_to_follow()) left |= write_words();
    return left;
  }
  suspicion_.judge(watch());
  return true;
}

bool RmaPut::write_words() {
  bool left = false;
  for (Lane& lane : lanes_) {
    if (lane.word_write->posted || lane.delivered == lane.written) continue;
    lane.writing = lane.delivered;
    try {
      const bool busy = write_word(lane, lane.writing, true) == Posted::busy;
      if (!busy) lane.refused.end();
      left |= busy;
    } catch (const std::runtime_error& reason) {
      refused(lane, reason.what());
      left = true;
    }
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

/// What waits for an answer of the peer never ends.
void RmaPut::give_up(Lane& lane) {
  for (auto& operation : lane.operations) {
    if (!operation->posted) continue;
    if (lane.signal_due != operation->epoch) lane.early[operation->epoch % lane.early.size()] = true;
    leave(lane, operation);
  }
  leave(lane, lane.pieces);
  if (lane.word_write->posted) leave(lane, lane.word_write);
  if (lane.flush_write->posted) leave(lane, lane.flush_write);
  lane.flush_due = false;
  abandon(lane);
}

void RmaPut::ended(Operation& operation, const std::string& why_not) {
  const auto lane = std::find_if(lanes_.begin(), lanes_.end(), [&](const Lane& one) { return one.owns(operation); });
  if (lane->flush_write.get() == &operation) return end_flush(why_not.empty() ? why_not : failure_of(*lane, why_not));
  if (!why_not.empty()) {
    const std::string why = failure_of(*lane, why_not);
    suspect(why);
    for (RmaPut* const other : there_.riders) {
      if (other->place_.index + 1 == operation.rider) other->suspect(why);
    }
  }
  if (lane->word_write.get() == &operation) {
    while (lane->written < lane->writing) over(++lane->written);
  } else if (lane->is_piece(operation) || lane->signal_due == operation.epoch) {
    return;  // the epoch ends with what follows
  } else if (!suspicion_.none()) {
    lane->early[operation.epoch % lane->early.size()] = true;  // its end waits for the verdict
  } else if (!has_words_to_follow() || watch().failed()) {
    over(operation.epoch);
  } else {
    arrived(*lane, operation.epoch);
  }
}

bool RmaPut::failed(void* context, const std::string& why) {
  for (Lane& lane : lanes_) {
    auto* const operation = static_cast<Operation*>(context);  // perhaps
    if (!lane.owns(*operation) || !operation->posted) continue;
    lane.rail->end(*operation, why);
    return true;
  }
  return false;
}

bool RmaPut::landed(std::uint64_t epoch) {
  const std::lock_guard lock(station_.mutex);
  draining_ = true;
  if (flushes_left_ == 0 && !flush_failure_.empty()) suspect(flush_failure_);
  return ask_landed(epoch);
}

/// True also if the peer is out of reach: then nobody will ever know. And after a flush that has failed, or was refused
/// for too long: closing has to end. Writes that were injected before it may be on their way still, and find the key of
/// the peer's memory closed, or, where memory of its own shares a registration, that memory in other use.
bool RmaPut::settled() {
  const std::lock_guard lock(station_.mutex);
  const bool refused = flushes_left_ == 0 && !flush_failure_.empty();
  return loss_.raised() || refused || ask_landed(watch().done.value.load(std::memory_order_acquire));
}

/// Of epochs that are over here.
bool RmaPut::ask_landed(std::uint64_t epoch) {
  const bool delivered = !station_.manner.ordered || place_.notice == Notice::counter;  // what is over is
  if (delivered || landed_ >= epoch) return true;
  asked_ = std::max(asked_, epoch);
  station_.attend_to(*this);
  post_flushes();
  return false;
}

/// Flushes are writes that are over once they are delivered, and so is all before them. They have bytes: over shm, one
/// that has none is never over (libfabric before 1.20). Returns whether one is still to be posted.
bool RmaPut::post_flushes() {
  if (flushes_left_ == 0 && asked_ > landed_ && flush_failure_.empty() && !loss_.raised()) {
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

/// Whether once more in the next turn.
bool RmaPut::post_flush(Lane& lane) {
  try {
    const Registration& from = lane.rail->flushes();
    const Posted posted =
        lane.rail->write({from.data, from.bytes, from.desc()}, lane.flushes, {}, true, *lane.flush_write);
    if (posted != Posted::busy) lane.flush_refused.end();
    return posted == Posted::busy;
  } catch (const std::runtime_error& reason) {
    if (!lane.flush_refused.last(station_.patience)) return true;
    end_flush(failure_of(lane, reason.what()));
    return false;
  }
}

void RmaPut::end_flush(const std::string& why_not) {
  if (!why_not.empty()) flush_failure_ = why_not;
  if (--flushes_left_ != 0) return;
  if (flush_failure_.empty()) {
    landed_ = flushing_;
  } else if (draining_) {
    suspect(flush_failure_);
  }
  watch().done_parking.wake();
}

std::string RmaPut::describe() const {
  std::string text = station_.provider + ": written into the target";
  if (lanes_.size() > 1) text += " over " + std::to_string(lanes_.size()) + " rails";
  if (lanes_.front().stage != nullptr)
    text += ", staged in pieces of " + std::to_string(lanes_.front().piece_bytes) + " bytes";
  if (place_.notice == Notice::counter) return text + ", where arrivals are counted";
  if (place_.notice == Notice::word) return text + ", then the signal by a second write";
  const std::size_t largest = std::min(lanes_.front().piece_bytes, share(0, place_.slot_bytes).bytes);
  const bool behind = station_.manner.ordered && largest >= kNumberBehind;
  return text + (behind ? ", then a number that raises the signal" : ", with a number that raises the signal");
}

}  // namespace sluice::backends::ofi
