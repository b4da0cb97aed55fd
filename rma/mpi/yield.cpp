// SPDX-License-Identifier: Apache-2.0
// MPICH waits by calling UCX's progress function in a loop. Where ranks outnumber cores, the awaited rank then
// gets a core only when the kernel takes one away, some milliseconds later. This definition of UCX's function stands
// before UCX's own, and gives the core away between calls that found nothing. It does so for programs with windows
// that Sluice serves, and where ranks outnumber cores; else it only passes the call on.
#include "rma/mpi/yield.hpp"

#include <sched.h>
#include <time.h>

#include <atomic>
#include <string>

#include "rma/mpi/behind.hpp"
#include "rma/mpi/log.hpp"
#include "rma/mpi/mailbox.hpp"

namespace sluice::mpi_rma {
namespace {

std::atomic<bool> g_yields{false};

std::atomic<bool> g_crowded{false};

/// How many cores the ranks of a communicator, which are on one host, may use together.
int cores_of(MPI_Comm on_host) {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  sched_getaffinity(0, sizeof mine, &mine);  // if it fails, there are no cores, and waits yield
  cpu_set_t all;
  CPU_ZERO(&all);
  PMPI_Allreduce(&mine, &all, sizeof mine, MPI_BYTE, MPI_BOR, on_host);
  return CPU_COUNT(&all);
}

}  // namespace

void yield_if_crowded(MPI_Comm comm) {
  MPI_Comm on_host = MPI_COMM_NULL;
  PMPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &on_host);
  int ranks = 0;
  PMPI_Comm_size(on_host, &ranks);
  const int cores = cores_of(on_host);
  PMPI_Comm_free(&on_host);
  if (ranks <= cores) return;
  log(Level::info, std::to_string(ranks) + " ranks on this host may use " + std::to_string(cores) +
                       " cores: waits give their core away");
  g_crowded.store(true, std::memory_order_relaxed);
  if (mpi_yields()) g_yields.store(true, std::memory_order_relaxed);
}

bool crowded() noexcept { return g_crowded.load(std::memory_order_relaxed); }

namespace {

using Progress = unsigned(void*);

/// Finds UCX's own function. Without UCX there is no worker, and a program that waits for one would wait for ever.
Progress* find_progress() noexcept {
  auto* const found = find_behind<Progress>("ucp_worker_progress", "libucp.so.0");
  if (found != nullptr) return found;
  log(Level::error, "a program calls ucp_worker_progress, and the loader knows no libucp.so.0");
  PMPI_Abort(MPI_COMM_WORLD, 1);
  return nullptr;
}

}  // namespace
}  // namespace sluice::mpi_rma

#pragma GCC visibility push(default)
extern "C" unsigned ucp_worker_progress(void* worker);

unsigned ucp_worker_progress(void* worker) {
  static auto* const next = sluice::mpi_rma::find_progress();
  constexpr int kIdleMost = 100;
  constexpr int kIdleYields = 30;  // then other programs have the core, which keep it for long
  constexpr timespec kIdleNap{.tv_sec = 0, .tv_nsec = 10000};
  thread_local int idle = 0;
  sluice::mpi_rma::serve_mailboxes();
  const unsigned progress = next(worker);
  if (progress != 0) {
    idle = 0;
  } else if (sluice::mpi_rma::g_yields.load(std::memory_order_relaxed) && ++idle > kIdleMost) {
    if (idle <= kIdleMost + kIdleYields) {
      sched_yield();
    } else {
      idle = kIdleMost + kIdleYields;  // no more is counted
      nanosleep(&kIdleNap, nullptr);
    }
  }
  return progress;
}
#pragma GCC visibility pop
