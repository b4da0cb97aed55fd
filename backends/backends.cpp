// SPDX-License-Identifier: Apache-2.0
// The table of backends: one row each, and the only file that names them.
#include <algorithm>
#include <utility>
#include <vector>

#include "backends/mpi/transport.hpp"
#include "backends/shm/transport.hpp"
#include "backends/threads/transport.hpp"
#include "backends/transport.hpp"
#ifdef SLUICE_HAS_OFI
#include "backends/ofi/leftovers.hpp"
#include "backends/ofi/transport.hpp"
#endif

namespace sluice::backends {
namespace {

std::vector<Backend>& local() {
  // Never destroyed: other ranks of the process may go on when one calls `exit`.
  static auto* const rows = new std::vector<Backend>{
      {"threads", Reach::host, 4, {}, threads::open},
      {"shm", Reach::host, 4, {}, shm::open},
  };
  return *rows;
}

std::vector<Backend> network() {
#ifdef SLUICE_HAS_OFI
  return ofi::rows();
#else
  return {};
#endif
}

std::optional<Backend> find_in(const std::vector<Backend>& rows, std::string_view name) {
  const auto row = std::ranges::find(rows, name, &Backend::name);
  return row == rows.end() ? std::nullopt : std::optional(*row);
}

}  // namespace

std::vector<Backend> backends() {
  std::vector<Backend> rows = local();
  for (Backend& row : network()) rows.push_back(std::move(row));
  rows.push_back(mpi::row());
  return rows;
}

std::optional<Backend> find_backend(std::string_view name) {
  if (auto row = find_in(local(), name)) return row;
  if (auto row = find_in({mpi::row()}, name)) return row;
  return find_in(network(), name);
}

std::vector<Backend> default_backends(bool other_hosts) {
  std::vector<Backend> rows = local();
  std::erase_if(rows, [](const Backend& row) { return row.reach != Reach::host; });
  if (!other_hosts) return rows;
  const std::vector<Backend> networks = network();
  const auto best = std::ranges::find(networks, Reach::network, &Backend::reach);
  if (best != networks.end()) rows.push_back(*best);
  return rows;
}

std::vector<Report> reports() {
#ifdef SLUICE_HAS_OFI
  return ofi::reports();
#else
  return {};
#endif
}

void remove_leftovers() noexcept {
#ifdef SLUICE_HAS_OFI
  ofi::remove_leftovers();
#endif
}

void register_backend(const Backend& backend) { local().insert(local().begin(), backend); }

}  // namespace sluice::backends
