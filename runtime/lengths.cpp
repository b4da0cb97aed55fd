// SPDX-License-Identifier: Apache-2.0
#include "runtime/lengths.hpp"

#include <iterator>
#include <new>

namespace sluice::runtime {

using backends::Landing;
using backends::Put;

Lengths::Lengths(int depth)
    : memory_(device::allocate(sizeof(PutLength) * static_cast<std::size_t>(depth), true)), slots_{memory_.extent(),
                                                                                                   sizeof(PutLength),
                                                                                                   depth} {
  for (int i = 0; i < depth; ++i) new (slots_.at(static_cast<std::uint64_t>(i))) PutLength;
}

// ---- the receiver

LengthsLanding::LengthsLanding(std::unique_ptr<Landing> bytes, Lengths memory)
    : Landing(bytes->describe() + "; with its length beside it"), bytes_(std::move(bytes)), memory_(std::move(memory)) {
}

std::pair<std::unique_ptr<LengthsLanding>, backends::Key> LengthsLanding::land(backends::Link& link,
                                                                               std::unique_ptr<Landing> bytes,
                                                                               int depth,
                                                                               const backends::Signal& signal) {
  std::unique_ptr<LengthsLanding> both(new LengthsLanding(std::move(bytes), Lengths(depth)));
  backends::Landed landed = link.land(both->memory_.slots(), {&signal, 1});
  both->lengths_ = std::move(landed.landing);
  both->look_at_ways();
  return {std::move(both), std::move(landed.key)};
}

void LengthsLanding::look_at_ways() {
  way_ = bytes_->way();
  if (way_ == Way::direct) way_ = lengths_->way();
}

void LengthsLanding::decide(const std::string& obstacle) {
  bytes_->decide(obstacle);
  how_ = bytes_->describe() + "; with its length beside it";
  look_at_ways();
}

void LengthsLanding::take(device::Lane lane, device::Watch& watch, std::uint64_t epoch) {
  if (lengths_->way() == Way::around) lengths_->take({}, watch, epoch);
  if (bytes_->way() == Way::around) bytes_->take(lane, watch, epoch);
}

bool LengthsLanding::close() {
  const bool lengths = lengths_->close();
  return bytes_->close() || lengths;
}

/// The peer may write the length of a later epoch meanwhile, if this one was released.
std::optional<std::size_t> LengthsLanding::bytes_of(std::uint64_t epoch) const noexcept {
  const PutLength& length = memory_.of(epoch);
  if (length.epoch.value.load(std::memory_order_acquire) != epoch) return std::nullopt;
  const std::uint64_t bytes = length.bytes.value.load(std::memory_order_acquire);
  if (length.epoch.value.load(std::memory_order_relaxed) != epoch) return std::nullopt;
  return static_cast<std::size_t>(bytes);
}

// ---- the sender

LengthsPut::LengthsPut(device::Watch& end, std::unique_ptr<Put> bytes, backends::Link& link, backends::Key key,
                       int depth, std::size_t slot_bytes)
    : Put(bytes->fired_by, bytes->by_bell, bytes->obstacle), end_(end), bytes_(std::move(bytes)), watch_(end),
      source_(depth), lengths_(link.prepare(source_.slots(), watch_, std::move(key))), slot_bytes_(slot_bytes) {}

void LengthsPut::watch(Engine& engine) {
  if (lengths_->by_bell == nullptr) return;
  engine.watch(*lengths_->by_bell);
  helper_ = engine.helper();
}

void LengthsPut::forget(Engine& engine) {
  if (lengths_->by_bell != nullptr) engine.forget(*lengths_->by_bell);
}

void LengthsPut::reach(Engine& engine, device::Driver& driver) {
  device::reach(driver, source_.slots().memory);
  device::reach_for_ever(driver, base::page_of(watch_.done), base::Progress::kPage);
  if (lengths_->by_bell != nullptr) {
    engine.reach(*lengths_->by_bell, driver);
  } else {
    lengths_->reach_from(driver);
  }
}

void LengthsPut::forget_refused_rings(Engine& engine) noexcept {
  if (lengths_->by_bell != nullptr) engine.forget_refused_rings(*lengths_->by_bell);
}

/// A NIC has so many entries. A GPU's stream, for which the engine arms, waits for nothing here.
void LengthsPut::await_room(device::Lane lane, std::uint64_t epoch) {
  if (lane.gpu != nullptr || lengths_->by_bell == nullptr) return;
  const std::uint64_t most = lengths_->by_bell->most_armed();
  if (epoch > most) device::wait(lane, {&watch_.done, epoch - most, &watch_.done_parking, epoch}, end_, helper_);
}

/// The slot's credit has come, so its last length was read.
void LengthsPut::write_length(device::Lane lane, std::uint64_t epoch, std::size_t bytes) const {
  PutLength& length = source_.of(epoch);
  if (lane.gpu != nullptr) {
    lane.gpu->write(length.epoch, epoch);
    lane.gpu->write(length.bytes, bytes);
    return lane.gpu->issue();  // else they might follow the put that reads them
  }
  length.epoch.value.store(epoch, std::memory_order_relaxed);
  length.bytes.value.store(bytes, std::memory_order_relaxed);
}

/// Shut means that nothing moves from then on, so that the epochs with a length have no gaps.
void LengthsPut::enqueue(device::Lane lane, std::uint64_t epoch, backends::Range part) {
  await_room(lane, epoch);
  if (!end_.shut()) {
    write_length(lane, epoch, part.bytes);
    lengths_->enqueue(lane, epoch, {0, sizeof(PutLength)});
    last_ = epoch;
  }
  bytes_->enqueue(lane, epoch, part);
}

bool LengthsPut::landed(std::uint64_t epoch) {
  const bool lengths = completed() && lengths_->landed(last_);
  return bytes_->landed(epoch) && lengths;
}

bool LengthsPut::settled() {
  const bool bytes = bytes_->settled();
  if (!completed()) return false;
  watch_.shut_it();
  return lengths_->settled() && bytes;
}

backends::Held LengthsPut::forget_peer() noexcept {
  backends::Held held = bytes_->forget_peer();
  backends::Held more = lengths_->forget_peer();
  const auto append = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  append(held.mapped, more.mapped);
  append(held.reached, more.reached);
  return held;
}

bool LengthsPut::disarmed(bool key_closed) {
  const bool lengths = lengths_->disarmed(key_closed);
  return bytes_->disarmed(key_closed) && lengths;
}

std::string LengthsPut::describe() const {
  const char* const by_nic = lengths_->fired_by == backends::Fired::by_nic ? " by the NIC" : "";
  return bytes_->describe() + std::string("; its length by a second put") + by_nic;
}

}  // namespace sluice::runtime
