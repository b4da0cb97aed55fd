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
  ++rings;
  Listener* const awake = listener;  // once the word has risen, the put may be over, and its bell gone
  if (adds) {
    word.value.fetch_add(1, std::memory_order_acq_rel);
  } else {
    word.value.store(rings, std::memory_order_release);
  }
  if (awake != nullptr) awake->heard();
}

bool EnginePut::post_rung() {
  const std::uint64_t rung = epoch_of(bell().word.value.load(std::memory_order_acquire));
  if (seeded("merged_doorbell") && rung > posted_ + 1) posted_ = rung - 1;
  while (posted_ < rung) {
    const std::uint64_t epoch = posted_ + 1;
    if (watch().shut()) {
      // Earlier epochs that are still under way raise the word first, or it would fall (test: Closing.any_order_works).
      if (!base::reached(watch().done, epoch - 1)) return true;
      base::raise(watch().done, epoch, watch().done_parking);
    } else if (!post(epoch, parts_[epoch % parts_.size()])) {
      if (seeded("busy_put_lost")) posted_ = epoch;
      return true;
    }
    posted_ = epoch;
  }
  return false;
}

}  // namespace sluice::backends
