// SPDX-License-Identifier: Apache-2.0
// One rank of one job: its peers, its engine, its channels. Contexts, memory and channels share it.
#pragma once

#include <sluice/run.hpp>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/env.hpp"
#include "peers/bootstrap.hpp"
#include "peers/peers.hpp"
#include "runtime/engine.hpp"
#include "runtime/failure.hpp"
#include "runtime/registry.hpp"
#include "runtime/services.hpp"

namespace sluice::runtime {

/// Why channels fail when sluice-run was killed.
inline constexpr const char* kLauncherLost = "sluice-run is gone";

class World final : public std::enable_shared_from_this<World>, private Engine::SocketService {
 public:
  static std::shared_ptr<World> open(Place place, const base::Env& env, const Options& options);
  ~World() override;

  /// Ends the rank's part in the job: what is still open fails here, and counts as lost at the peers. Idempotent.
  /// @param body_failed  by an exception
  void end(bool body_failed) noexcept;

  const Place& place() const noexcept { return place_; }
  /// Lives as long as the world does.
  const Services& services() const noexcept { return services_; }
  std::shared_ptr<const Services> share_services() { return {shared_from_this(), &services_}; }
  std::vector<std::shared_ptr<const void>> pin(const device::Extent& memory);
  void abort(const std::string& why);

 private:
  World(Place place, const base::Env& env, const Options& options);

  // Engine::SocketService
  int prepare(std::vector<pollfd>& sockets) override;
  void serve(std::span<const pollfd> sockets) override;

  void tell_of_failures(bool body_failed);
  void lose_launcher();
  bool serve_peers();
  void go_without_descriptors();

  const base::Origin origin_;
  Place place_;
  backends::Transports transports_;
  Failures failures_;
  Peers peers_;  // with the registry's mutex, as all that follows
  Registry registry_;
  std::string complaint_;                  // what could not be served last; empty: nothing
  base::Clock::time_point lacks_since_{};  // lacks a descriptor; the clock's beginning: lacks none
  std::string lack_;                       // while one is: how many are needed, and may be had
  int launcher_fd_;  // a pipe whose other end sluice-run holds; -1: there is none, or sluice-run was killed
  Services services_;
  Engine engine_;  // last: its thread uses the rest
};

}  // namespace sluice::runtime
