// SPDX-License-Identifier: Apache-2.0
// Environment variables of launchers other than sluice-run.
#pragma once

#include <optional>
#include <string>

namespace sluice::runtime {

/// A launcher that started this process.
struct OtherLauncher {
  std::string said;  ///< the variable that decides, and its value: FLUX_JOB_SIZE=4
  int ranks = 1;     ///< the launcher has started so many ranks, or more
  bool told = true;  ///< `ranks` is exact
};

/// The launcher that started this process. Nothing if no known launcher did, or in a shell that one has opened.
[[gnu::visibility("default")]] std::optional<OtherLauncher> other_launcher();

/// Warns that the launcher did not tell how many ranks it has started, and that this process is a job of one rank.
[[gnu::visibility("default")]] void warn_of_one_rank(const OtherLauncher& launcher);

}  // namespace sluice::runtime
