// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/landing.hpp"

#include <algorithm>
#include <utility>

#include "backends/ofi/triggered.hpp"

namespace sluice::backends::ofi {
namespace {

/// In the order that cxi insists on.
Owned<fid_mr> register_counted(Rail& rail, const std::byte* from, std::size_t bytes, device::Driver* gpus,
                               fid_cntr* counter) {
  fid_mr* const mr =
      rail.register_memory({const_cast<std::byte*>(from), bytes, nullptr, gpus}, FI_REMOTE_WRITE, FI_RMA_EVENT);
  Owned<fid_mr> registered(mr);
  const bool by_endpoint = (rail.info().domain_attr->mr_mode & FI_MR_ENDPOINT) != 0;
  if (by_endpoint) check(fi_mr_bind(mr, &rail.endpoint()->fid, 0), "fi_mr_bind");
  check(fi_mr_bind(mr, &counter->fid, FI_REMOTE_WRITE), "fi_mr_bind");
  if (by_endpoint) check(fi_mr_enable(mr), "fi_mr_enable");
  return registered;
}

}  // namespace

RmaLanding::RmaLanding(Station& station, const Endpoints& endpoints, const Slots& target,
                       std::span<const Signal> signals)
    : DirectLanding({}), station_(station), signals_(signals.begin(), signals.end()) {
  const std::lock_guard lock(station.mutex);
  const auto reached = [&](const auto& rail) { return rail->registered_if_reached(target.memory) != nullptr; };
  if (target.memory.bytes != 0 && !std::all_of(station.rails.begin(), station.rails.end(), reached))
    staged_.emplace(target);
  const Slots& slots_here = staged_ ? staged_->slots() : target;
  place_.index = station.arrivals.add(signals_, target, endpoints);
  place_.slot_bytes = target.slot_bytes;
  place_.stride = slots_here.slot_bytes;
  place_.staged = staged_.has_value();
  place_.depth = target.depth;
  place_.rails = static_cast<std::uint32_t>(signals_.size());
  place_.notice = station.manner.has_room(place_.index, target.depth) ? Notice::data : Notice::word;
  try {
    for (std::size_t i = 0; i < signals_.size(); ++i) open(i, endpoints.of(place_.index, i), slots_here.memory);
  } catch (...) {
    station.arrivals.remove(place_.index);
    throw;
  }
  if (staged_) way_ = Way::around;
  how_ = station_.provider +
         (staged_ ? ": lands in memory that the provider reaches, and wait copies it" : ": lands in the target itself");
  const bool word = place_.notice == Notice::word;
  how_ +=
      word ? "; the peer writes the signal too" : "; the engine raises the signal for the number that comes with it";
  if (!word) return;
  for (const Signal& signal : signals_) station.written_words.push_back({&signal, 0});
}

/// Rail `i`, at one of our endpoints. No bytes: its signal alone.
void RmaLanding::open(std::size_t i, std::size_t endpoint, const device::Extent& memory) {
  Rail& rail = *station_.rails[endpoint];
  const auto word = rail.registered(signals_[i].memory);
  const auto slots = memory.bytes == 0 ? word : rail.registered(memory);
  const auto* const at = reinterpret_cast<const std::byte*>(signals_[i].word);
  place_.rail[i] = {static_cast<std::uint32_t>(endpoint),
                    memory.bytes == 0 ? word->address(at) : slots->address(memory.data), slots->key(),
                    word->address(at), word->key()};
  registered_.insert(registered_.end(), {word, slots});
}

RmaLanding::~RmaLanding() {
  const std::lock_guard lock(station_.mutex);
  station_.arrivals.remove(place_.index);
  std::erase_if(station_.written_words, [&](const WrittenWord& written) {
    return std::any_of(signals_.begin(), signals_.end(), [&](const Signal& one) { return &one == written.signal; });
  });
  registered_.clear();
}

CountedLanding::CountedLanding(Station& station, const Endpoints& endpoints, const Slots& target,
                               std::span<const Signal> signals)
    : DirectLanding(station.provider + ": lands in the target itself, where arrivals are counted"), station_(station) {
  const std::lock_guard lock(station.mutex);
  const bool by_offset = (station.rails.front()->info().domain_attr->mr_mode & FI_MR_VIRT_ADDR) == 0;
  target_.index = station.arrivals.add(signals, target, endpoints);
  target_.slot_bytes = target.slot_bytes;
  target_.stride = by_offset ? 0 : target.slot_bytes;
  target_.depth = target.depth;
  target_.rails = static_cast<std::uint32_t>(signals.size());
  target_.notice = Notice::counter;
  try {
    for (std::size_t i = 0; i < signals.size(); ++i) open(i, endpoints.of(target_.index, i), target, signals[i]);
  } catch (...) {
    station.arrivals.remove(target_.index);
    lanes_.clear();
    throw;
  }
  station.counted.push_back(this);
}

/// Rail `i`, at one of our endpoints.
void CountedLanding::open(std::size_t i, std::size_t endpoint, const Slots& target, const Signal& signal) {
  Rail& rail = *station_.rails[endpoint];
  const bool by_offset = (rail.info().domain_attr->mr_mode & FI_MR_VIRT_ADDR) == 0;
  target_.rail[i].endpoint = static_cast<std::uint32_t>(endpoint);
  target_.rail[i].slots = by_offset ? 0 : reinterpret_cast<std::uintptr_t>(target.memory.data);
  Lane lane{signal, {}};
  for (std::uint64_t slot = 0; slot < static_cast<std::uint64_t>(target.depth); ++slot) {
    auto counter = open_counter(rail);
    auto memory = register_counted(rail, target.at(slot), target.slot_bytes, target.memory.driver, counter.get());
    target_.keys.push_back(fi_mr_key(memory.get()));
    lane.slots.push_back({std::move(counter), std::move(memory)});
  }
  lanes_.push_back(std::move(lane));
}

bool CountedLanding::close() {
  const std::lock_guard lock(station_.mutex);
  for (Lane& lane : lanes_) {
    for (Slot& slot : lane.slots) slot.memory.reset();
  }
  return std::exchange(open_, false);
}

CountedLanding::~CountedLanding() {
  const std::lock_guard lock(station_.mutex);
  std::erase(station_.counted, this);
  station_.arrivals.remove(target_.index);
  lanes_.clear();
}

/// The slot of `epoch` is written once in `depth` epochs.
bool CountedLanding::Lane::arrived(std::uint64_t epoch) const {
  return fi_cntr_read(slots[epoch % slots.size()].arrivals.get()) * slots.size() >= epoch;
}

void CountedLanding::look() {
  for (Lane& lane : lanes_) {
    const std::uint64_t before = lane.seen;
    while (lane.arrived(lane.seen + 1)) ++lane.seen;
    if (lane.seen != before) raise_signal(lane.signal, lane.seen);
  }
}

}  // namespace sluice::backends::ofi
