// SPDX-License-Identifier: Apache-2.0
// The variables of launchers other than sluice-run.
#pragma once

#include <optional>
#include <string>

namespace sluice::runtime {

/// A launcher that started this process.
struct OtherLauncher {
  std::string said;  ///< the variable that tells most, and its value: FLUX_JOB_SIZE=4
  int ranks = 1;     ///< so many are started, or more
  bool told = true;  ///< how many they are is known
};

/// Nothing: no launcher that is known, or a shell that one has opened.
[[gnu::visibility("default")]] std::optional<OtherLauncher> other_launcher();

/// The launcher did not tell how many ranks it has started, and this one knows of no others: one line says so.
[[gnu::visibility("default")]] void warn_of_one_rank(const OtherLauncher& launcher);

}  // namespace sluice::runtime
