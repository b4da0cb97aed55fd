// SPDX-License-Identifier: Apache-2.0
// MPI Advance's stream MPI by Sluice, enqueued ahead and synchronised by the host, beside channels on a host stream.
#include "apps/bench/ours/stream_mpi.hpp"
#include "apps/bench/benches.hpp"

#include <fmt/core.h>

#include <utility>
#include <vector>

namespace bench {
namespace {

/// Makers of one unit by MPI Advance's functions and by channels.
struct StreamMpiRow {
  std::string metric;
  Maker by_mpis;
  Ours (*by_channels)(const Workload& workload);
  RivalColumn rivals;
};

void measure_stream_mpi(Session& session, const StreamMpiRow& row, Drive drive, std::size_t bytes) {
  Workload workload = session.pair_workload(bytes, 1);
  workload.drive = drive;
  Ours channels = row.by_channels(workload);
  std::vector<Entry> beside;
  beside.push_back({"sluice_api", "ours, by channels on a host stream", std::move(channels.contender)});
  Budget budget = session.budget();
  if (drive == Drive::stepwise) budget.batch = 0;
  measure_row(session, workload, row.rivals, {row.by_mpis(workload), channels.description}, {row.metric, "us", in_us},
              budget, std::move(beside));
}

}  // namespace

void run_stream_mpi(Session& session) {
  const std::string halo = fmt::format("halo step, {} neighbours", session.options.neighbours);
  for (const auto& [drive, how] : {std::pair(Drive::ahead, "enqueued"), std::pair(Drive::stepwise, "synchronised")}) {
    const StreamMpiRow rows[] = {
        {fmt::format("round trip {}", how), make_mpis_ping_pong, make_ping_pong, &Rival::stream},
        {fmt::format("{} {}", halo, how), make_mpis_halo, make_halo, &Rival::halo},
    };
    for (const StreamMpiRow& row : rows)
      for (const std::size_t bytes : session.options.sizes) measure_stream_mpi(session, row, drive, bytes);
  }
}

}  // namespace bench
