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
  const Haste haste = haste_;
  word.value.store(count, std::memory_order_release);
  if (awake != nullptr) awake->heard(haste);
}

EnginePut::EnginePut(device::Watch& watch, int depth, bool moves_bytes, std::size_t rails)
    : RungPut(watch, std::make_shared<Doorbell>()), Posting(watch, depth, rails),
      parts_(moves_bytes ? static_cast<std::size_t>(depth) : 0) {}

/// Whatever their backend: the engine looks at the bell.
const void* EnginePut::bell_kind() const noexcept {
  static const char kind = 0;
  return &kind;
}

}  // namespace sluice::backends
