// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/by_word.hpp"

#include <algorithm>
#include <utility>

#include "backends/ofi/rma.hpp"

namespace sluice::backends::ofi {

// ---- the sender

/// With write-after-write order: the word follows the data at once.
bool RmaPut::post_then_word(Lane& lane, const Message& message) {
  if (!post_ahead(lane, message) || write_word(lane, message.epoch, false) == Posted::busy) return false;
  followed(lane, message.epoch);
  return true;
}

/// Without order: the word is written once the data is known to be delivered.
bool RmaPut::post_delivered(Lane& lane, const Message& message) {
  if (message.range.bytes != 0) return write(lane, message, {}, true, lane.of(message.epoch)) != Posted::busy;
  arrived(lane, message.epoch);
  return true;
}

Posted RmaPut::write_word(Lane& lane, std::uint64_t epoch, bool delivered) {
  Operation& word = *lane.word_write;
  if (word.posted) return Posted::busy;  // the last one is still read
  word.value = epoch;
  return lane.rail->write({extent_of(word.value).data, sizeof word.value, lane.word_source->desc()}, lane.word, {},
                          delivered, word);
}

/// Without order: the data of `epoch` is in place. Its word may be written once all data before it is.
void RmaPut::arrived(Lane& lane, std::uint64_t epoch) {
  lane.early[epoch % lane.early.size()] = true;
  while (lane.early[(lane.delivered + 1) % lane.early.size()]) {
    ++lane.delivered;
    lane.early[lane.delivered % lane.early.size()] = false;
  }
  station_.attend_to(*this);
}

/// Returns whether a word is left to write.
bool RmaPut::write_words() {
  bool left = false;
  for (Lane& lane : lanes_) {
    if (lane.word_write->posted || lane.delivered == lane.written) continue;
    lane.writing = lane.delivered;
    left |= !attempt(lane.refused, *lane.route, [&] { return write_word(lane, lane.writing, true) != Posted::busy; });
  }
  return left;
}

/// The put has failed: epochs that wait for their word, or for the verdict, complete without a word, which the peer
/// would believe.
void RmaPut::abandon_words(Lane& lane) {
  while (lane.written < lane.delivered) over(++lane.written);
  for (std::uint64_t epoch = lane.delivered + 1; epoch <= lane.delivered + lane.early.size(); ++epoch) {
    if (lane.early[epoch % lane.early.size()]) over(epoch);
    lane.early[epoch % lane.early.size()] = false;
  }
}

// ---- the receiver

void WrittenWords::add(std::span<const Signal> signals) {
  for (const Signal& signal : signals) words_.push_back({&signal, 0});
}

void WrittenWords::remove(std::span<const Signal> signals) {
  std::erase_if(words_, [&](const Word& written) {
    return std::ranges::any_of(signals, [&](const Signal& one) { return &one == written.signal; });
  });
}

void WrittenWords::look() noexcept {
  for (Word& one : words_) {
    const std::uint64_t value = one.signal->word->value.load(std::memory_order_acquire);
    if (value != std::exchange(one.seen, value)) one.signal->parking->wake();
  }
}

}  // namespace sluice::backends::ofi
