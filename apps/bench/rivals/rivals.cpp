// SPDX-License-Identifier: Apache-2.0
// The table of rivals.
#include "apps/bench/rivals/rivals.hpp"

#include "apps/bench/ours/packing.hpp"
#include "apps/bench/rivals/floor.hpp"
#include "apps/bench/rivals/mpi.hpp"
#include "apps/bench/rivals/ofi.hpp"
#include "apps/bench/rivals/program.hpp"
#include "apps/bench/rivals/protocol_floor.hpp"
#include "apps/common/usage_error.hpp"

#include <algorithm>

namespace bench {
namespace {

template <MpiMode mode>
std::unique_ptr<Contender> ping_pong(const Workload& workload) {
  return make_mpi_ping_pong(mode, workload);
}

template <MpiMode mode>
std::unique_ptr<Contender> flood(const Workload& workload) {
  return make_mpi_flood(mode, workload);
}

template <MpiPacking packing>
std::unique_ptr<Contender> packed_column(const Workload& workload) {
  return make_mpi_column_ping_pong(packing, workload);
}

template <MpiPacking packing>
std::unique_ptr<Contender> packed_faces(const Workload& workload) {
  return make_mpi_face_exchange(packing, workload);
}

template <OfiMode mode>
std::unique_ptr<Contender> ofi_ping_pong(const Workload& workload) {
  return make_ofi_ping_pong(mode, workload);
}

template <OfiMode mode>
std::unique_ptr<Contender> ofi_flood(const Workload& workload) {
  return make_ofi_flood(mode, workload);
}

template <OfiMode mode>
std::unique_ptr<Contender> ofi_accesses(const Workload& workload) {
  return make_ofi_accesses(mode, workload);
}

template <Program program>
std::unique_ptr<Contender> program_ping_pong(const Workload& workload) {
  return workload.programs->make(program, "ping_pong", workload);
}

template <Program program>
std::unique_ptr<Contender> program_flood(const Workload& workload) {
  return workload.programs->make(program, "flood", workload);
}

template <Program program>
std::unique_ptr<Contender> program_halo(const Workload& workload) {
  return workload.programs->make(program, "halo", workload);
}

template <Program program>
std::unique_ptr<Contender> program_kernel(const Workload& workload) {
  return workload.programs->make(program, "kernel", workload);
}

constexpr auto kOnGpus = "moves memory of the host, and is no rival on a GPU's stream";

// The first allowed backend that is no mapped memory; empty if there is none.
std::string network(const Options& options) {
  for (const auto& backend : split(options.backend)) {
    if (backend != "threads" && backend != "shm") return backend;
  }
  return {};
}

std::string why_no_floor(const Options& options) {
  if (of_gpu(options.stream)) return kOnGpus;
  const std::string other = network(options);
  if (other.empty()) return {};
  return "is memory that both map, no rival of --backend " + other + ": it is for threads and shm";
}

std::string why_no_floor_of_user_memory(const Options& options) {
  if (options.memory != MemoryChoice::user)
    return "is for --memory user: memory of the library needs one copy, by one rank";
  return why_no_floor(options);
}

template <OfiMode mode>
std::string why_no_ofi_floor(const Options& options) {
  if (of_gpu(options.stream)) return kOnGpus;
  if (ofi_provider(options).empty()) return "needs a provider, and no other backend: --backend ofi:PROVIDER";
  return why_no_ofi(mode, options);
}

std::string why_no_mpi(const Options& options) {
  if (of_gpu(options.stream)) return kOnGpus;
  return under_mpi() ? "" : "needs a start under MPI: mpiexec -n N ... (or srun)";
}

std::string why_no_mpi_windows(const Options& options) {
  std::string why = why_no_mpi(options);
  if (!why.empty() || !mpi_windows_are_ours()) return why;
  return "MPI's windows are Sluice's in this process: mpi_windows measures them";
}

template <Program program>
std::string why_no(const Options& options) {
  const std::string other = network(options);
  return other.empty() ? why_no_program(program, options)
                       : "works on one machine, and is no rival of --backend " + other;
}

bool nowhere(const Options& /*options*/) { return false; }
bool on_networks(const Options& options) { return !ofi_provider(options).empty() && !of_gpu(options.stream); }
bool on_gpus(const Options& options) { return options.stream == StreamChoice::cuda && network(options).empty(); }

std::string no_library(const Options& /*options*/) { return {}; }

/// The columns of a rival program besides latency and bandwidth, which all of them have.
struct Abilities {
  bool rate = false;
  bool stream = false;
  bool halo = false;
  bool replay = false;
  bool enqueue_and_kernel = false;
};

template <Program program>
Rival program_rival(const char* name, const char* what, Abilities can) {
  constexpr auto kPingPong = program_ping_pong<program>;
  constexpr auto kHalo = program_halo<program>;
  return {.name = name,
          .what = what,
          .why_not = why_no<program>,
          .library = no_library,
          .expected = on_gpus,
          .latency = kPingPong,
          .bandwidth = program_flood<program>,
          .rate = can.rate ? program_flood<program> : nullptr,
          .stream = can.stream ? kPingPong : nullptr,
          .enqueue = can.enqueue_and_kernel ? kPingPong : nullptr,
          .halo = can.halo ? kHalo : nullptr,
          .replay = can.replay ? kPingPong : nullptr,
          .replay_halo = can.replay ? kHalo : nullptr,
          .device = can.enqueue_and_kernel ? program_kernel<program> : nullptr};
}

constexpr Abilities kAll = {.rate = true, .stream = true, .halo = true, .replay = true, .enqueue_and_kernel = true};

// Named on a network only, where an MPI has several ways. In mapped memory all MPIs do the same.
std::string mpi_on_network(const Options& options) { return ofi_provider(options).empty() ? "" : mpi_library(); }

constexpr auto kFlag = OfiMode::flag;
constexpr auto kFlagWait = OfiMode::flag_wait;
constexpr auto kData = OfiMode::data;
constexpr auto kSendRecv = MpiMode::send_recv;
constexpr auto kPersistent = MpiMode::persistent;
constexpr auto kPutFlush = MpiMode::put_flush;
constexpr auto kPutFlushUser = MpiMode::put_flush_user;

// The one-sided modes of MPI have no `rate`, in which every message is notified: their puts have no notification. They
// have no `scale`, because a fence involves all ranks, and so does the making of a window.
const std::vector<Rival>& table() {
  static const std::vector<Rival> rivals = {
      {.name = "floor",
       .what = "memory that both map: memcpy, the processor's atomics, a release store, a spinning acquire load; no "
               "library",
       .why_not = why_no_floor,
       .library = no_library,
       .expected = nowhere,
       .latency = make_floor_ping_pong,
       .bandwidth = make_floor_flood,
       .rate = make_floor_flood,
       .stream = make_floor_ping_pong,
       .scale = make_floor_ping_pong,
       .rma = make_floor_accesses},
      {.name = "protocol_floor",
       .what = "the floor with what a channel promises: a ring of slots, a signal and a credit for every message",
       .why_not = why_no_floor,
       .library = no_library,
       .expected = nowhere,
       .latency = make_protocol_ping_pong,
       .bandwidth = make_protocol_flood,
       .rate = make_protocol_flood},
      {.name = "shared_copy",
       .what = "the floor, but each rank copies half of the message; from memory that both map",
       .why_not = why_no_floor_of_user_memory,
       .library = no_library,
       .expected = nowhere,
       .latency = make_shared_copy},
      {.name = "two_copies",
       .what = "protocol_floor, and the receiver copies each message out of its slot",
       .why_not = why_no_floor_of_user_memory,
       .library = no_library,
       .expected = nowhere,
       .latency = make_two_copies},
      {.name = "ofi_floor",
       .what = "fi_write, then fi_inject_write of a flag that the target polls in memory; both directly on libfabric",
       .why_not = why_no_ofi_floor<kFlag>,
       .library = ofi_library,
       .expected = on_networks,
       .latency = ofi_ping_pong<kFlag>,
       .bandwidth = ofi_flood<kFlag>,
       .rate = ofi_flood<kFlag>},
      {.name = "ofi_floor_wait",
       .what = "as ofi_floor, with a completion queue that can be slept on (FI_WAIT_FD)",
       .why_not = why_no_ofi_floor<kFlagWait>,
       .library = ofi_library,
       .expected = on_networks,
       .latency = ofi_ping_pong<kFlagWait>,
       .bandwidth = ofi_flood<kFlagWait>,
       .rate = ofi_flood<kFlagWait>},
      {.name = "ofi_floor_data",
       .what = "fi_writedata, whose remote data the target finds in its completion queue; directly on libfabric",
       .why_not = why_no_ofi_floor<kData>,
       .library = ofi_library,
       .expected = on_networks,
       .latency = ofi_ping_pong<kData>,
       .bandwidth = ofi_flood<kData>,
       .rate = ofi_flood<kData>},
      {.name = "ofi_floor_access",
       .what = "fi_write, fi_read and libfabric's atomics until their completions (FI_DELIVERY_COMPLETE), a notice by "
               "fi_inject_write of a flag; directly on libfabric",
       .why_not = why_no_ofi_floor<OfiMode::access>,
       .library = ofi_library,
       .expected = on_networks,
       .rma = ofi_accesses<OfiMode::access>},
      {.name = "ofi_floor_access_wait",
       .what = "as ofi_floor_access, with a completion queue that can be slept on (FI_WAIT_FD)",
       .why_not = why_no_ofi_floor<OfiMode::access_wait>,
       .library = ofi_library,
       .expected = on_networks,
       .rma = ofi_accesses<OfiMode::access_wait>},
      {.name = "mpi",
       .what = "MPI_Send and MPI_Recv; windows, overlap and pipeline by MPI_Isend and MPI_Irecv",
       .why_not = why_no_mpi,
       .library = mpi_on_network,
       .expected = nowhere,
       .latency = ping_pong<kSendRecv>,
       .bandwidth = flood<kSendRecv>,
       .rate = flood<kSendRecv>,
       .pipeline = make_mpi_ring,
       .overlap = make_mpi_overlap,
       .scale = ping_pong<kSendRecv>},
      {.name = "mpi_persistent",
       .what = "MPI_Send_init, MPI_Recv_init and MPI_Startall, driven by the host",
       .why_not = why_no_mpi,
       .library = mpi_on_network,
       .expected = nowhere,
       .latency = ping_pong<kPersistent>,
       .bandwidth = flood<kPersistent>,
       .rate = flood<kPersistent>,
       .stream = ping_pong<kPersistent>,
       .halo = make_mpi_halo,
       .scale = ping_pong<kPersistent>},
      {.name = "mpi_put_flush",
       .what = "MPI_Put, flush, flag by MPI_Put, flush, into MPI_Win_allocate; windows have one flag at their end",
       .why_not = why_no_mpi_windows,
       .library = mpi_on_network,
       .expected = nowhere,
       .latency = ping_pong<kPutFlush>,
       .bandwidth = flood<kPutFlush>},
      {.name = "mpi_put_flush_user",
       .what = "the same into malloc'ed memory, MPI_Win_create",
       .why_not = why_no_mpi_windows,
       .library = mpi_on_network,
       .expected = nowhere,
       .latency = ping_pong<kPutFlushUser>,
       .bandwidth = flood<kPutFlushUser>},
      {.name = "mpi_pscw",
       .what = "MPI_Put between start and complete, post and wait, into MPI_Win_allocate",
       .why_not = why_no_mpi_windows,
       .library = mpi_on_network,
       .expected = nowhere,
       .latency = ping_pong<MpiMode::pscw>},
      {.name = "mpi_fence",
       .what = "MPI_Put between fences, into MPI_Win_allocate",
       .why_not = why_no_mpi_windows,
       .library = mpi_on_network,
       .expected = nowhere,
       .latency = ping_pong<MpiMode::fence>},
      {.name = "mpi_rma",
       .what =
           "MPI_Put, MPI_Get, MPI_Fetch_and_op, MPI_Compare_and_swap or MPI_Accumulate and MPI_Win_flush, in an epoch "
           "of MPI_Win_lock_all, into MPI_Win_allocate; a notice by an empty MPI_Send, for which the owner waits; "
           "fences, "
           "post to wait, and locks in a window that is not locked otherwise",
       .why_not = why_no_mpi_windows,
       .library = mpi_on_network,
       .expected = nowhere,
       .rma = make_mpi_accesses,
       .hash_table = make_mpi_hash_table,
       .sparse_exchange = make_mpi_inbox_exchange},
      {.name = "mpi_nbx",
       .what = "MPI_Issend, MPI_Iprobe and MPI_Ibarrier (NBX)",
       .why_not = why_no_mpi,
       .library = mpi_on_network,
       .expected = nowhere,
       .sparse_exchange = make_mpi_nbx_exchange},
      {.name = "mpi_rsx",
       .what = "MPI_Accumulate of the numbers of messages and MPI_Win_fence, MPI_Isend and MPI_Recv (RSX)",
       .why_not = why_no_mpi_windows,
       .library = mpi_on_network,
       .expected = nowhere,
       .sparse_exchange = make_mpi_rsx_exchange},
      {.name = "mpi_collectives",
       .what = "MPI_Barrier, MPI_Allreduce, MPI_Bcast, MPI_Allgather, MPI_Alltoall, MPI_Alltoallv, which block the "
               "host",
       .why_not = why_no_mpi,
       .library = mpi_on_network,
       .expected = nowhere,
       .collectives = make_mpi_collective},
      {.name = "mpi_winfence",
       .what = "MPI_Put between fences, into MPI_Win_allocate: alltoallv alone",
       .why_not = why_no_mpi_windows,
       .library = mpi_on_network,
       .expected = nowhere,
       .collectives = make_mpi_fence_alltoallv},
      {.name = "mpi_winlock",
       .what = "MPI_Put, MPI_Win_flush_all and MPI_Barrier in an epoch of MPI_Win_lock_all, into MPI_Win_allocate: "
               "alltoallv alone",
       .why_not = why_no_mpi_windows,
       .library = mpi_on_network,
       .expected = nowhere,
       .collectives = make_mpi_lock_alltoallv},
      {.name = "mpi_packed",
       .what =
           "kernels of Kokkos that pack, a fence, persistent requests, and where there are gaps kernels that unpack",
       .why_not = why_no_mpi,
       .library = mpi_on_network,
       .expected = nowhere,
       .packing = packed_column<MpiPacking::by_kokkos>,
       .packing_faces = packed_faces<MpiPacking::by_kokkos>},
      {.name = "mpi_datatype",
       .what = "persistent requests of MPI_Type_vector: MPI packs",
       .why_not = why_no_mpi,
       .library = mpi_on_network,
       .expected = nowhere,
       .packing = packed_column<MpiPacking::by_datatype>,
       .packing_faces = packed_faces<MpiPacking::by_datatype>},
      program_rival<Program::raw>("raw",
                                  "copies of the driver, words by cuStreamWriteValue64 and cuStreamWaitValue64, or a "
                                  "kernel's stores and loads, "
                                  "in memory of cuIpcOpenMemHandle",
                                  kAll),
      program_rival<Program::raw_host>(
          "raw_host", "raw, with its words in memory of the hosts that the driver has registered, as ours", kAll),
      program_rival<Program::synchronised>(
          "synchronised", "a copy into the peer's memory, cuStreamSynchronize, a flag in memory that the hosts share",
          {.stream = true, .halo = true}),
      program_rival<Program::nvshmem>("nvshmem",
                                      "nvshmemx_putmem_signal_on_stream, or _block in a kernel; waits by "
                                      "nvshmemx_signal_wait_until_on_stream, or by "
                                      "the driver where NVSHMEM refuses that, or by nvshmem_signal_wait_until",
                                      kAll),
      program_rival<Program::nccl>("nccl", "ncclSend and ncclRecv; windows and halos in groups",
                                   {.rate = true, .stream = true, .halo = true, .replay = true}),
      program_rival<Program::nccl_put>("nccl_put", "ncclPutSignal and ncclWaitSignal",
                                       {.rate = true, .stream = true, .halo = true}),
      program_rival<Program::ucx>(
          "ucx", "ucp_put of ucx_perftest on cuda_ipc: its own figure, taken once, before the rounds", {}),
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

void check_possible(const Rival& rival, const Options& options, RivalColumn column) {
  const std::string refused = std::string("--against ") + rival.name;
  if (const std::string why = rival.why_not(options); !why.empty()) throw apps::UsageError(refused + ": " + why);
  if (rival.*column == nullptr) throw apps::UsageError(refused + ": not comparable in this bench");
}

bool asked(const Options& options, const std::string& name) {
  return std::ranges::find(options.against, name) != options.against.end();
}

}  // namespace

std::string what(const Rival& rival, const Options& options) {
  const std::string library = rival.library(options);
  return library.empty() ? rival.what : std::string(rival.what) + "; " + library;
}

bool is_floor(const std::string& name) {
  return name == "raw" || name == "raw_host" || name.find("floor") != std::string::npos;
}

void check_rivals(const Options& options, RivalColumn column) {
  for (const auto& name : options.against) {
    if (name != "all" && name != "none") check_possible(*find(name), options, column);
  }
}

std::vector<const Rival*> rivals_for(const Options& options, RivalColumn column) {
  std::vector<const Rival*> chosen;
  for (const Rival& rival : table()) {
    if (rival.*column == nullptr || !(asked(options, "all") || asked(options, rival.name))) continue;
    if (rival.why_not(options).empty()) chosen.push_back(&rival);
  }
  return chosen;
}

std::vector<std::string> left_out(const Options& options, RivalColumn column) {
  std::vector<std::string> lines;
  for (const Rival& rival : table()) {
    if (!rival.expected(options) || rival.*column == nullptr || !asked(options, "all")) continue;
    if (const std::string why = rival.why_not(options); !why.empty())
      lines.push_back(std::string(rival.name) + " is left out: " + why);
  }
  return lines;
}

}  // namespace bench
