// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/access.hpp"

#include <algorithm>
#include <stdexcept>

namespace sluice::backends::ofi {
namespace {

fi_op op_of(Request::Kind kind) noexcept {
  if (kind == Request::Kind::fetch_add) return FI_SUM;
  return kind == Request::Kind::swap ? FI_ATOMIC_WRITE : FI_CSWAP;
}

Bounds bounds_of(const Rail& rail, const device::Extent& local, const Offered& offered) {
  return {local.bytes, offered.bytes, rail.info().ep_attr->max_msg_size, rail.why_no_atomics()};
}

}  // namespace

Offer offer_memory(Station& station, const device::Extent& memory) {
  check_offered(memory);
  auto pin = new_pin(station);
  const std::lock_guard lock(station.mutex);
  const auto& registered = pin->emplace_back(station.rails.front()->registered(memory));
  const Offered offered{registered->address(memory.data), registered->key(), memory.bytes};
  return {{bytes_of(offered), {}, {}}, station.provider + ": offered in place", std::move(pin)};
}

RmaAccess::RmaAccess(Station& station, Destination& there, const device::Extent& local, int depth, device::Watch& watch,
                     const Offered& offered)
    : EngineAccess(bounds_of(*there.route(0).rail, local, offered), depth, watch,
                   station.provider + ": posted by the engine"),
      Mover(station, there, watch), rail_(*there.route(0).rail),
      local_(local), offered_{there.route(0).from, there.route(0).address, offered.address, offered.key},
      flights_(static_cast<std::size_t>(depth)) {
  if (!rail_.reads()) throw std::runtime_error(station.provider + " cannot read the memory of peers");
  const std::lock_guard lock(station.mutex);
  if (local.bytes != 0) local_registered_ = rail_.registered(local);
  flights_registered_ =
      rail_.registered({reinterpret_cast<std::byte*>(flights_.data()), flights_.size() * sizeof(Flight), nullptr});
  for (Flight& flight : flights_) {
    flight.operation.owner = this;
    rail_.know(flight.operation);
  }
  join();
}

/// Nothing waits for the operations under way any more: `each(epoch)`.
template <class Each>
void RmaAccess::give_up(Each each) {
  for (Flight& flight : flights_) {
    if (!flight.operation.posted || flight.operation.owner == nullptr) continue;
    rail_.give_up(flight.operation);
    each(flight.operation.epoch);
  }
}

RmaAccess::~RmaAccess() {
  const std::lock_guard lock(station_.mutex);
  give_up([](std::uint64_t) {});
  leave();
  const auto under_way = [](const Flight& flight) { return flight.operation.posted; };
  if (std::ranges::any_of(flights_, under_way)) keep_flights();
  local_registered_.reset();
  flights_registered_.reset();
}

/// The provider may still use the flights, and the memory.
void RmaAccess::keep_flights() {
  rail_.disown(*local_registered_);
  rail_.disown(*flights_registered_);
  station_.orphaned_flights.push_back(std::move(flights_));
  station_.orphaned_memory.insert(station_.orphaned_memory.end(), {local_registered_, flights_registered_});
}

bool RmaAccess::post(std::uint64_t epoch, const Request& request) {
  const std::lock_guard lock(station_.mutex);
  if (suspicious() || lost()) return false;  // the rest waits for the verdict too
  try {
    Flight& flight = flights_[epoch % flights_.size()];
    flight.operation.epoch = epoch;
    const Posted posted = start(flight, request);
    if (posted == Posted::over) over(epoch);
    if (posted != Posted::busy) refused_.end();
    return posted != Posted::busy;
  } catch (const std::runtime_error& reason) {
    if (refused_.last(station_.patience)) suspect(reason.what());
    return false;
  }
}

Posted RmaAccess::start(Flight& flight, const Request& request) {
  if (request.local.bytes == 0) return Posted::over;
  std::byte* const here = local_.data + request.local.offset;
  void* const desc = local_registered_->desc();
  Remote there = offered_;
  there.address += request.offset;
  if (request.kind == Request::Kind::get) return rail_.read(here, request.local.bytes, desc, there, flight.operation);
  if (request.kind == Request::Kind::put)
    return rail_.write({here, request.local.bytes, desc}, there, {}, true, flight.operation);
  flight.operand = request.operand;
  flight.compare = request.compare;
  return rail_.fetch(op_of(request.kind), flight, flights_registered_->desc(), here, desc, there);
}

std::size_t RmaAccess::bytes_under_way() const {
  const auto posted = [](const Flight& flight) { return flight.operation.posted; };
  return static_cast<std::size_t>(std::ranges::count_if(flights_, posted)) * local_.bytes;
}

void RmaAccess::ended(Operation& operation, const std::string& why_not) {
  if (why_not.empty() || lost()) return over(operation.epoch);
  suspect("a request over " + station_.provider + " failed: " + why_not);
  lost_.push_back(operation.epoch);
}

bool RmaAccess::attend() {
  if (gives_up()) give_up([this](std::uint64_t epoch) { over(epoch); });
  if (!watch().failed()) {
    judge();
    return true;
  }
  for (const std::uint64_t epoch : lost_) over(epoch);
  lost_.clear();
  return false;
}

}  // namespace sluice::backends::ofi
