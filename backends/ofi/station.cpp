// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/station.hpp"

#include <cstring>
#include <stdexcept>

#include "backends/ofi/triggered.hpp"

namespace sluice::backends::ofi {

Station::Station() = default;

Station::~Station() {
  std::vector<std::vector<Work>> memory;  // libfabric may look at it until its endpoint is closed
  for (const auto& work : left_work) memory.push_back(work->memory());
  left_work.clear();
  for (const auto& rail : rails) rail->close_endpoints();
  orphaned_memory.clear();
  rails.clear();
}

const Route& Destination::route(std::size_t endpoint) const {
  const Route& route = routes.at(endpoint);
  if (route.rail == nullptr)
    throw std::runtime_error("no network path leads to an endpoint of the peer: " + route.text);
  return route;
}

Key key_of(const Target& target) {
  Key key;
  const auto append = [&](const void* from, std::size_t bytes) {
    const auto* const first = static_cast<const std::byte*>(from);
    key.bytes.insert(key.bytes.end(), first, first + bytes);
  };
  append(static_cast<const Place*>(&target), sizeof(Place));
  append(target.keys.data(), target.keys.size() * sizeof(std::uint64_t));
  return key;
}

Target target_of(const Key& key) {
  Target target;
  if (key.bytes.size() < sizeof(Place)) throw std::runtime_error("a key of the wrong size");
  std::memcpy(static_cast<Place*>(&target), key.bytes.data(), sizeof(Place));
  if (target.rails < 1 || target.rails > Place::kMostRails || target.depth < 1) throw std::runtime_error("a bad key");
  const std::size_t keys = target.notice == Notice::counter ? target.rails * static_cast<std::size_t>(target.depth) : 0;
  if (key.bytes.size() != sizeof(Place) + keys * sizeof(std::uint64_t))
    throw std::runtime_error("a key of the wrong size");
  target.keys.resize(keys);
  if (keys != 0) std::memcpy(target.keys.data(), key.bytes.data() + sizeof(Place), keys * sizeof(std::uint64_t));
  return target;
}

}  // namespace sluice::backends::ofi
