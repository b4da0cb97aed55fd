// SPDX-License-Identifier: Apache-2.0
// MPICH waits by calling UCX's progress function in a loop. Where ranks outnumber cores, the awaited rank then
// gets a core only when the kernel takes one away, some milliseconds later. This definition of UCX's function stands
// before UCX's own, and gives the core away between calls that found nothing. It does so for programs with windows
// that Sluice serves, and where ranks outnumber cores; else it only passes the call on.
#include "rma/mpi/yield.hpp"

#include <dlfcn.h>
#include <sched.h>
#include <time.h>

#include <atomic>

#include "rma/mpi/log.hpp"

namespace sluice::mpi_rma {
namespace {

std::atomic<bool> g_yields{false};

/// Cores that this process may use.
int cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

}  // namespace

void yield_if_crowded(int ranks_here) {
  if (ranks_here <= cores() || !mpi_yields()) return;
  g_yields.store(true, std::memory_order_relaxed);
}

}  // namespace sluice::mpi_rma

#pragma GCC visibility push(default)
extern "C" unsigned ucp_worker_progress(void* worker);

unsigned ucp_worker_progress(void* worker) {
  using Function = unsigned(void*);
  static auto* const next = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, "ucp_worker_progress"));
  constexpr int kIdleMost = 100;
  constexpr int kIdleYields = 30;  // then other programs have the core, which keep it for long
  constexpr timespec kNap{.tv_sec = 0, .tv_nsec = 10000};
  thread_local int idle = 0;
  const unsigned progress = next(worker);
  if (progress != 0) {
    idle = 0;
  } else if (sluice::mpi_rma::g_yields.load(std::memory_order_relaxed) && ++idle > kIdleMost) {
    if (idle <= kIdleMost + kIdleYields) {
      sched_yield();
    } else {
      nanosleep(&kNap, nullptr);
    }
  }
  return progress;
}
#pragma GCC visibility pop
