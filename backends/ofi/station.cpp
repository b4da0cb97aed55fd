// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/station.hpp"

#include <stdexcept>
#include <utility>

#include "backends/ofi/triggered.hpp"

namespace sluice::backends::ofi {

Station::Station() = default;

Station::~Station() {
  std::vector<std::vector<Work>> memory;  // libfabric may look at it until its endpoint is closed
  for (const auto& work : left_work) memory.push_back(work->memory());
  left_work.clear();
  for (const auto& rail : rails) rail->close_endpoints();
  orphaned_memory.clear();
  for (auto& flights : orphaned_flights) {
    for (Flight& flight : flights) flight.local.reset();
  }
  rails.clear();
}

void Station::attend_to(Mover& mover) {
  if (!std::exchange(mover.attended, true)) attended.push_back(&mover);
}

bool Station::attend() {
  bool left = false;
  for (std::size_t i = 0; i < attended.size(); ++i) left |= attended[i]->attend();  // which may add more
  std::erase_if(attended, [](Mover* mover) { return !(mover->attended = !mover->rests()); });
  return left;
}

std::shared_ptr<Pin> new_pin(Station& station) {
  return {new Pin, [&station](const Pin* pin) {
            const std::lock_guard lock(station.mutex);
            delete pin;
          }};
}

std::shared_ptr<Target> new_place(Station& station, const Destination& there, const Endpoints& endpoints,
                                  const Slots& target, std::span<const Signal> signals) {
  const std::uint64_t index = [&] {
    const std::lock_guard lock(station.mutex);
    return station.arrivals.add(signals, target, endpoints);
  }();
  const Place place{index, target.slot_bytes, target.slot_bytes, target.depth,
                    static_cast<std::uint32_t>(signals.size())};
  return {new Target{place, {}}, [&station, lost = there.lost](const Target* one) {
            const std::lock_guard lock(station.mutex);
            station.arrivals.remove(one->index, !*lost);
            delete one;
          }};
}

const Route& Destination::route(std::size_t endpoint) const {
  const Route& route = routes.at(endpoint);
  if (route.rail == nullptr)
    throw std::runtime_error("no network path leads to an endpoint of the peer: " + route.text);
  return route;
}

void Mover::leave() {
  if (attended) std::erase(station_.attended, this);
  there_.movers.erase(this);
  for (const auto& rail : station_.rails) rail->forget(*this);
}

void Mover::suspect(const std::string& why) {
  if (suspicious() || lost()) return;
  suspicion_ = why;
  verdict_ = base::Clock::now() + kMoment;
  station_.attend_to(*this);
}

std::string Mover::failure_of(const Route& route, const std::string& why) const {
  return what_ + " over " + station_.provider + " from " + route.text + " failed" + (why.empty() ? "" : ": " + why) +
         " (" + kChosenBy + ")";
}

void Mover::judge() {
  if (suspicious() && base::Clock::now() >= verdict_) fails_.fail(Code::transport, suspicion_);
}

void Mover::peer_lost() {
  given_up_at_ = base::Clock::now() + kMoment;
  station_.attend_to(*this);
}

void Mover::path_lost(const Route& route, const std::string& why) {
  if (!uses(route)) return;
  fails_.fail(Code::transport, why);
  peer_lost();  // as far as this mover goes
}

Key key_of(const Target& target) {
  Key key{bytes_of(static_cast<const Place&>(target)), {}, {}};
  const auto keys = std::as_bytes(std::span(target.keys));
  key.bytes.insert(key.bytes.end(), keys.begin(), keys.end());
  return key;
}

Target target_of(const Key& key) {
  Target target{value_in<Place>(key.bytes), {}};
  if (target.rails < 1 || target.rails > Place::kMostRails || target.depth < 1) throw std::runtime_error("a bad key");
  const std::size_t keys = target.notice == Notice::counter ? target.rails * static_cast<std::size_t>(target.depth) : 0;
  if (key.bytes.size() != sizeof(Place) + keys * sizeof(std::uint64_t))
    throw std::runtime_error("a key of the wrong size");
  for (std::size_t i = 0; i < keys; ++i)
    target.keys.push_back(value_in<std::uint64_t>(key.bytes, sizeof(Place) + i * sizeof(std::uint64_t)));
  return target;
}

}  // namespace sluice::backends::ofi
