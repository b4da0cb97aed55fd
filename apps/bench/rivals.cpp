// SPDX-License-Identifier: Apache-2.0
// The table of rivals.
#include "apps/bench/rivals.hpp"

#include "apps/bench/rivals_floor.hpp"
#include "apps/bench/rivals_mpi.hpp"
#include "apps/common/usage_error.hpp"

#include <algorithm>

namespace bench {
namespace {

template <MpiMode mode>
std::unique_ptr<Contender> ping_pong(const Case& one_case) {
  return make_mpi_ping_pong(mode, one_case);
}

template <MpiMode mode>
std::unique_ptr<Contender> flood(const Case& one_case) {
  return make_mpi_flood(mode, one_case);
}

constexpr auto kSendRecv = MpiMode::send_recv;
constexpr auto kPersistent = MpiMode::persistent;
constexpr auto kPutFlush = MpiMode::put_flush;
constexpr auto kPutFlushUser = MpiMode::put_flush_user;

// A put without a notification is no rival in a bench of notified messages: the one-sided modes have no rate. A fence,
// and here a window, is the business of all ranks: the one-sided modes have no scale.
const std::vector<Rival>& table() {
  static const std::vector<Rival> rivals = {
      {.name = "floor",
       .what = "memory that both map: memcpy, a release store, a spinning acquire load; no library",
       .needs_mpi = false,
       .latency = make_floor_ping_pong,
       .bandwidth = make_floor_flood,
       .rate = make_floor_flood,
       .stream = make_floor_ping_pong,
       .scale = make_floor_ping_pong},
      {.name = "mpi",
       .what = "MPI_Send and MPI_Recv; windows and overlap by MPI_Isend and MPI_Irecv",
       .needs_mpi = true,
       .latency = ping_pong<kSendRecv>,
       .bandwidth = flood<kSendRecv>,
       .rate = flood<kSendRecv>,
       .overlap = make_mpi_overlap,
       .scale = ping_pong<kSendRecv>},
      {.name = "mpi_persistent",
       .what = "MPI_Send_init, MPI_Recv_init and MPI_Startall, driven by the host",
       .needs_mpi = true,
       .latency = ping_pong<kPersistent>,
       .bandwidth = flood<kPersistent>,
       .rate = flood<kPersistent>,
       .stream = ping_pong<kPersistent>,
       .halo = make_mpi_halo,
       .scale = ping_pong<kPersistent>},
      {.name = "mpi_put_flush",
       .what = "MPI_Put, flush, flag by MPI_Put, flush, into MPI_Win_allocate; windows have one flag at their end",
       .needs_mpi = true,
       .latency = ping_pong<kPutFlush>,
       .bandwidth = flood<kPutFlush>},
      {.name = "mpi_put_flush_user",
       .what = "the same into malloc'ed memory, MPI_Win_create",
       .needs_mpi = true,
       .latency = ping_pong<kPutFlushUser>,
       .bandwidth = flood<kPutFlushUser>},
      {.name = "mpi_pscw",
       .what = "MPI_Put between start and complete, post and wait, into MPI_Win_allocate",
       .needs_mpi = true,
       .latency = ping_pong<MpiMode::pscw>},
      {.name = "mpi_fence",
       .what = "MPI_Put between fences, into MPI_Win_allocate",
       .needs_mpi = true,
       .latency = ping_pong<MpiMode::fence>},
  };
  return rivals;
}

std::string known_names() {
  std::string names;
  for (const Rival& rival : table()) names += std::string(rival.name) + ", ";
  return names + "all, none";
}

const Rival* find(const std::string& name) {
  const auto found = std::ranges::find_if(table(), [&](const Rival& rival) { return name == rival.name; });
  if (found == table().end())
    throw apps::UsageError("--against: no rival '" + name + "' (there are: " + known_names() + ")");
  return &*found;
}

void check_possible(const Rival& rival, RivalColumn column) {
  if (rival.needs_mpi && !under_mpi())
    throw apps::UsageError(std::string("--against ") + rival.name +
                           " needs a start under MPI: mpiexec -n N ... (or srun)");
  if (rival.*column == nullptr)
    throw apps::UsageError(std::string("--against ") + rival.name + ": not comparable in this bench");
}

}  // namespace

void check_rivals(const std::vector<std::string>& against, RivalColumn column) {
  for (const auto& name : against) {
    if (name != "all" && name != "none") check_possible(*find(name), column);
  }
}

std::vector<const Rival*> rivals_for(const std::vector<std::string>& against, RivalColumn column) {
  const auto asked = [&](const char* name) { return std::ranges::find(against, name) != against.end(); };
  const bool all = asked("all");
  std::vector<const Rival*> chosen;
  for (const Rival& rival : table()) {
    const bool possible = rival.*column != nullptr && (!rival.needs_mpi || under_mpi());
    if (possible && (all || asked(rival.name))) chosen.push_back(&rival);
  }
  return chosen;
}

}  // namespace bench
