// SPDX-License-Identifier: Apache-2.0
// Environment variables of launchers other than sluice-run.
#include "launch/start.hpp"

#include "base/log.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <string_view>

namespace sluice::runtime {

namespace {

struct Row {
  const char* rank;
  const char* size;     ///< null: there is no such variable
  bool whole = true;    ///< `size` is that of the job, not of this host's part
  bool shells = false;  ///< shells that the launcher opens have these variables too, with one rank
};

// The first row that has the number of ranks decides: launchers that are nearer to the program come first.
constexpr std::array kTable = {
    Row{"PMI_RANK", "PMI_SIZE"},                              // MPICH, Intel MPI, Cray
    Row{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},      // Open MPI
    Row{"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},        // MVAPICH
    Row{"JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},          // IBM's jsrun
    Row{"FLUX_TASK_RANK", "FLUX_JOB_SIZE"},                   // Flux
    Row{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", true, true},  // Slurm
    Row{"MPI_LOCALRANKID", "MPI_LOCALNRANKS", false},         // MPICH's Hydra
    Row{"PALS_RANKID", "PALS_LOCAL_SIZE", false},             // Cray's PALS
    Row{"ALPS_APP_PE", nullptr},                              // Cray's ALPS
    Row{"PMIX_RANK", nullptr},                                // PRRTE and others
};

std::optional<int> number_in(const char* variable) {
  const std::string_view text = variable == nullptr || std::getenv(variable) == nullptr ? "" : std::getenv(variable);
  int number = -1;  // no number, or one that no rank has, as PMIX_RANK may be
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number >= 0 ? std::optional(number) : std::nullopt;
}

std::string said(const char* variable) { return std::string(variable) + "=" + std::getenv(variable); }

std::optional<OtherLauncher> launcher_of(const Row& row) {
  const int size = number_in(row.size).value_or(0);
  const auto rank = number_in(row.rank);
  const bool shell = row.shells && size <= 1 && rank.value_or(0) == 0;
  if (shell || (size < 1 && !rank)) return std::nullopt;
  const bool by_rank = rank.value_or(0) >= size;
  const int ranks = std::max({1, size, rank.value_or(0) + 1});
  return OtherLauncher{said(by_rank ? row.rank : row.size), ranks, ranks > 1 || (size == 1 && row.whole)};
}

}  // namespace

std::optional<OtherLauncher> other_launcher() {
  std::optional<OtherLauncher> found;
  for (const Row& row : kTable) {
    auto launcher = launcher_of(row);
    if (launcher && launcher->told) return launcher;
    if (!found) found = launcher;
  }
  return found;
}

void warn_of_one_rank(const OtherLauncher& launcher) {
  base::log(base::LogLevel::warn, launcher.said +
                                      ": a launcher that does not tell how many ranks it has started; this process is "
                                      "a job of one rank");
}

}  // namespace sluice::runtime
