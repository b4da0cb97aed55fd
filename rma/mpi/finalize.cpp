// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/finalize.hpp"

#include <sluice/error.hpp>

#include <mpi.h>

#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "rma/mpi/at_finalize.hpp"
#include "rma/mpi/job.hpp"
#include "rma/mpi/log.hpp"
#include "rma/mpi/rma_window.hpp"
#include "rma/mpi/windows.hpp"

namespace sluice::mpi_rma {
namespace {

struct Jobs {
  std::atomic<bool> ending{false};
  std::mutex mutex;
  std::vector<std::shared_ptr<Job>> all;
};

Jobs& jobs() {
  static Jobs& made = *new Jobs;
  return made;
}

std::string name_of(MPI_Win handle) {
  std::array<char, MPI_MAX_OBJECT_NAME + 1> name{};
  int length = 0;
  PMPI_Win_get_name(handle, name.data(), &length);
  return length == 0 ? "a window without a name" : "the window '" + std::string(name.data()) + "'";
}

/// Calls `close(timeout)` until it does not run out of time. Peers come to MPI_Finalize when they like, and may need
/// this rank's share of MPI's progress until then.
template <class Close>
void close_politely(Close close) {
  for (;;) {
    try {
      return close(std::chrono::milliseconds(10));
    } catch (const Error& error) {
      if (error.code() != Code::timeout) throw;
    }
    int flag = 0;
    PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
  }
}

void end_all() {
  jobs().ending = true;
  const auto left = take_all_windows();
  std::vector<std::shared_ptr<Job>> ending;
  {
    const std::lock_guard lock(jobs().mutex);
    ending = std::exchange(jobs().all, {});
  }
  for (const auto& window : left) {
    log(Level::warn, "rank " + std::to_string(window->rank) + ": MPI_Finalize, and " + name_of(window->handle) +
                         " of " + std::to_string(window->made.bytes) + " bytes was not freed");
    window->abandon();
  }
  for (const auto& job : ending) job->control.close_lines();
  for (const auto& window : left) close_politely([&](Timeout timeout) { window->close_memory(timeout); });
  for (const auto& job : ending) close_politely([&](Timeout timeout) { job->control.close_words(timeout); });
}

extern "C" int sluice_rma_end(MPI_Comm, int, void*, void*) {
  try {
    end_all();
  } catch (const std::exception& reason) {
    log(Level::error, std::string("MPI_Finalize: ") + reason.what());
  }
  return MPI_SUCCESS;
}

}  // namespace

std::vector<std::shared_ptr<Job>> living_jobs() {
  const std::lock_guard lock(jobs().mutex);
  return jobs().all;
}

bool finalizing() { return jobs().ending; }

void end_with_finalize(std::shared_ptr<Job> job) {
  static const bool once = [] {
    at_finalize(&sluice_rma_end);
    return true;
  }();
  static_cast<void>(once);
  const std::lock_guard lock(jobs().mutex);
  jobs().all.push_back(std::move(job));
}

}  // namespace sluice::mpi_rma
