// SPDX-License-Identifier: Apache-2.0
// Hosts and addresses of all ranks of a job that spans several hosts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <sluice/types.hpp>

#include "base/fd.hpp"
#include "base/network.hpp"
#include "peers/wire.hpp"

namespace sluice::runtime {

/// Host and address of one rank.
struct Home {
  base::Endpoint listener;  ///< where ranks of other hosts connect to it
  std::uint32_t host = 0;   ///< a number that the ranks of one host have in common
};

/// The table of all ranks. It is a memory file: the ranks that one sluice-run starts share its pages.
class [[gnu::visibility("default")]] Roster {
 public:
  /// For a job on one host.
  Roster() noexcept = default;
  /// @param fd  made by `write` @throws std::invalid_argument if it is not for that many ranks
  explicit Roster(const base::Fd& fd, int ranks);

  static base::Fd write(const Secret& secret, std::span<const Home> homes);

  bool several_hosts() const noexcept { return table_ != nullptr; }
  /// A number that the ranks of one host have in common.
  std::uint32_t host_of(Rank rank) const noexcept { return several_hosts() ? home(rank).host : 0; }
  bool same_host(Rank one, Rank other) const noexcept { return host_of(one) == host_of(other); }
  const base::Endpoint& listener_of(Rank rank) const noexcept { return home(rank).listener; }
  /// Known to the ranks of this job alone.
  const Secret& secret() const noexcept { return *table_; }

 private:
  const Home& home(Rank rank) const noexcept { return reinterpret_cast<const Home*>(table_.get() + 1)[rank]; }

  std::shared_ptr<const Secret> table_;  // mapped; the homes follow it
};

}  // namespace sluice::runtime
