// SPDX-License-Identifier: Apache-2.0
// Memory that peers read and change over the network: requests that the engine posts.
#pragma once

#include "backends/access.hpp"
#include "backends/ofi/station.hpp"

namespace sluice::backends::ofi {

/// Offered memory as the peer gets to know it, at the owner's first endpoint. All offers of a rank are reached there,
/// since changes by two NICs need not be atomic.
struct Offered {
  std::uint64_t address = 0;
  std::uint64_t key = 0;
  std::uint64_t bytes = 0;
};

Offer offer_memory(Station& station, const device::Extent& memory);

class RmaAccess final : public EngineAccess, private Mover {
 public:
  /// @throws std::runtime_error if the provider cannot read.
  RmaAccess(Station& station, Destination& there, const device::Extent& local, int depth, device::Watch& watch,
            const Offered& offered);
  ~RmaAccess() override;

 private:
  bool post(std::uint64_t epoch, const Request& request) override;
  void ended(Operation& operation, const std::string& why_not) override;
  bool attend() override;
  bool uses(const Route& route) const noexcept override { return &route == &there_.routes.front(); }
  std::size_t bytes_under_way() const override;
  template <class Each>
  void give_up(Each each);
  Posted start(Flight& flight, const Request& request);
  void keep_flights();

  Rail& rail_;
  device::Extent local_;
  Remote offered_;
  std::vector<Flight> flights_;  // by epoch mod depth
  std::shared_ptr<Registration> local_registered_;
  std::shared_ptr<Registration> flights_registered_;
  std::vector<std::uint64_t> lost_;  // epochs that have failed, and wait for the verdict
  Refusals refused_;
};

}  // namespace sluice::backends::ofi
