// SPDX-License-Identifier: Apache-2.0
#include "backends/ofi/access.hpp"

#include <algorithm>
#include <stdexcept>

namespace sluice::backends::ofi {
namespace {

/// Offered memory as the peer gets to know it, at the owner's first endpoint. All offers of a rank are reached there,
/// since changes by two NICs need not be atomic.
struct Offered {
  Spot spot;
  std::uint64_t bytes = 0;
};

Bounds bounds_of(const Rail& rail, const Offered& offered) {
  constexpr const char* kNotMapped = "it is not mapped";
  return {.offered = offered.bytes, .at_once = rail.largest_message(), .no_atomics = kNotMapped, .no_gpus = kNotMapped};
}

class RmaAccess final : public EngineAccess, private Mover {
 public:
  RmaAccess(Station& station, Destination& there, int depth, device::Watch& watch, const Offered& offered)
      : EngineAccess(bounds_of(*there.route(0).rail, offered), depth, watch,
                     station.provider + ": posted by the engine"),
        Mover(station, there, watch, "a request"), route_(there.route(0)),
        rail_(*route_.rail), offered_{route_.from, route_.address, offered.spot},
        flights_(static_cast<std::size_t>(depth)) {
    if (!rail_.reads()) throw std::runtime_error(station.provider + " cannot read the memory of peers");
    const std::lock_guard lock(station.mutex);
    for (Flight& flight : flights_) rail_.know(flight.operation, *this);
    join();
  }

  /// The provider may still use flights that are under way, and the memory.
  ~RmaAccess() override {
    const std::lock_guard lock(station_.mutex);
    give_up([](std::uint64_t) {});
    leave();
    if (posted_flights() != 0) {
      for (const Flight& flight : flights_) {
        if (flight.local != nullptr) rail_.disown(*flight.local);
      }
      station_.orphaned_flights.push_back(std::move(flights_));
    }
    flights_.clear();
  }

 private:
  bool post(std::uint64_t epoch, const Request& request) override {
    const std::lock_guard lock(station_.mutex);
    if (suspicious() || lost()) return false;  // the rest waits for the verdict too
    return attempt(refused_, route_, [&] {
      Flight& flight = flights_[epoch % flights_.size()];
      flight.operation.epoch = epoch;
      const Posted posted = start(flight, request);
      if (posted != Posted::under_way) flight.local.reset();
      if (posted == Posted::over) over(epoch);
      return posted != Posted::busy;
    });
  }

  Posted start(Flight& flight, const Request& request) {
    const std::size_t bytes = request.local.size();
    if (bytes == 0) return Posted::over;
    std::byte* const here = request.local.data();
    flight.local = registration_of(request.local);
    flight.bytes = bytes;
    void* const desc = flight.local->desc();
    Remote there = offered_;
    there.spot.address += request.offset;
    if (request.kind == Request::Kind::get) return rail_.read(here, bytes, desc, there, flight.operation);
    return rail_.write({here, bytes, desc, flight.local->of_gpu}, there, {}, true, flight.operation);
  }

  /// A registration ends with its region, so the last one is not used for memory that the program has freed.
  std::shared_ptr<Registration> registration_of(std::span<std::byte> local) {
    if (auto last = last_.lock(); last != nullptr && last->holds(local.data(), local.size())) return last;
    auto found = rail_.registered({local.data(), local.size()});
    last_ = found;
    return found;
  }

  void ended(Operation& operation, const std::string& why_not) override {
    flights_[operation.epoch % flights_.size()].local.reset();
    if (why_not.empty() || lost()) return over(operation.epoch);
    suspect(failure_of(route_, why_not));
    lost_.push_back(operation.epoch);
    station_.attend_to(*this);
  }

  bool attend() override {
    if (gives_up()) {
      give_up([this](std::uint64_t epoch) { over(epoch); });
      gave_up_ = true;
    }
    if (!watch_.failed()) {
      judge();
      return true;
    }
    for (const std::uint64_t epoch : lost_) over(epoch);
    lost_.clear();
    return false;
  }

  bool rests() const override { return watch_.failed() && (!lost() || gave_up_); }

  /// Nothing waits for the operations under way any more: `each(epoch)`.
  template <class Each>
  void give_up(Each each) {
    for (Flight& flight : flights_) {
      if (!flight.operation.posted || flight.operation.owner == nullptr) continue;
      rail_.give_up(flight.operation);
      each(flight.operation.epoch);
    }
  }

  bool uses(const Route& route) const noexcept override { return &route == &route_; }
  std::size_t bytes_under_way() const override {
    std::size_t bytes = 0;
    for (const Flight& flight : flights_) bytes += flight.local == nullptr ? 0 : flight.bytes;
    return bytes;
  }
  std::size_t posted_flights() const {
    const auto posted = [](const Flight& flight) { return flight.operation.posted; };
    return static_cast<std::size_t>(std::ranges::count_if(flights_, posted));
  }

  const Route& route_;
  Rail& rail_;  // stays when the route is lost
  Remote offered_;
  std::vector<Flight> flights_;  // by epoch mod depth
  std::weak_ptr<Registration> last_;
  std::vector<std::uint64_t> lost_;  // epochs that have failed, and wait for the verdict
  Refusals refused_;
  bool gave_up_ = false;  // nothing is under way any more, since the peer was lost
};

}  // namespace

Offer offer_memory(Station& station, const device::Extent& memory) {
  check_offered(memory);
  auto pin = new_pin(station);
  const std::lock_guard lock(station.mutex);
  const auto& registered = pin->emplace_back(station.rails.front()->registered(memory));
  const Offered offered{registered->spot(memory.data), memory.bytes};
  return {{bytes_of(offered), {}, {}}, station.provider + ": offered in place", std::move(pin)};
}

std::unique_ptr<Access> open_access(Station& station, Destination& there, int depth, device::Watch& watch,
                                    const Key& key) {
  return std::make_unique<RmaAccess>(station, there, depth, watch, value_of<Offered>(key.bytes));
}

}  // namespace sluice::backends::ofi
