// SPDX-License-Identifier: Apache-2.0
#include "backends/put.hpp"

#include "device/copy.hpp"

namespace sluice::backends {

using base::seeded;

void raise_signal(const Signal& signal, std::uint64_t epoch) noexcept {
  if (seeded("lost_signal") && epoch % 64 == 63) return;
  base::raise(*signal.word, epoch, *signal.parking);
}

void MappedPut::enqueue(device::Lane lane, std::uint64_t epoch, Range part) {
  if (!watch_.shut() || seeded("poison_permits")) {
    if (seeded("signal_before_data")) raise_signal(signal_, epoch);
    if (part.bytes != 0) {
      const std::size_t offset = seeded("partial_offset_ignored") ? 0 : part.offset;
      device::copy(lane, target_.at(epoch) + offset, source_.at(epoch) + part.offset, part.bytes);
    }
    if (!seeded("zero_byte_no_signal") || part.bytes != 0 || target_.slot_bytes == 0) raise_signal(signal_, epoch);
  }
  base::raise(watch_.done, epoch, watch_.done_parking);
}

void Doorbell::ring(device::Lane) noexcept {
  const std::uint64_t count = rings.load(std::memory_order_relaxed) + 1;
  rings.store(count, std::memory_order_relaxed);
  Listener* const awake = listener_;  // once the word has risen, the put may be over, and its bell gone
  word.value.store(count, std::memory_order_release);
  if (awake != nullptr) awake->heard();
}

EnginePut::EnginePut(device::Watch& watch, int depth, std::size_t rails)
    : RungPut(watch, std::make_shared<Doorbell>()), parts_(static_cast<std::size_t>(depth)),
      shares_over_(parts_.size()), posted_(rails) {}

/// Whatever their backend: the engine looks at the bell.
const void* EnginePut::bell_kind() const noexcept {
  static const char kind = 0;
  return &kind;
}

bool EnginePut::post_rung() {
  const std::uint64_t rung = epoch_of(bell().word.value.load(std::memory_order_acquire));
  bool left = false;
  for (std::size_t rail = 0; rail < posted_.size(); ++rail) left |= post_rung(rail, rung);
  return left;
}

bool EnginePut::post_rung(std::size_t rail, std::uint64_t rung) {
  std::uint64_t& posted = posted_[rail];
  if (seeded("merged_doorbell") && rung > posted + 1) posted = rung - 1;
  while (posted < rung) {
    const std::uint64_t epoch = posted + 1;
    // What is not posted any more waits its turn as if it were: no more than depth epochs are under way.
    if (epoch > done_ + parts_.size()) return true;
    if (watch().shut()) {
      if (!at_rest(rail)) return true;
      over(epoch);
    } else if (!post(rail, epoch, parts_[epoch % parts_.size()])) {
      if (seeded("busy_put_lost")) posted = epoch;
      return true;
    }
    posted = epoch;
  }
  return false;
}

void EnginePut::over(std::uint64_t epoch) noexcept {
  ++shares_over_[epoch % shares_over_.size()];
  std::uint64_t done = done_;
  // Epochs may end in any order (test: Closing.any_order_works); the word only rises.
  while (shares_over_[(done + 1) % shares_over_.size()] == posted_.size()) {
    ++done;
    shares_over_[done % shares_over_.size()] = 0;
  }
  if (done == done_) return;
  done_ = done;
  base::raise(watch().done, done, watch().done_parking);
}

}  // namespace sluice::backends
