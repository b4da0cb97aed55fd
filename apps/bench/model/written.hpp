// SPDX-License-Identifier: Apache-2.0
// The file of `--write-model`, for SLUICE_MODEL.
#pragma once

#include "collectives/loggp.hpp"

#include <string>
#include <string_view>

namespace bench {

/// The text of the file; empty if there is none. @throws apps::UsageError for a file with another content
std::string parameters_in(const std::string& path);

/// `text` with the section `name`, "mapped" or "network", replaced by these costs. `backend`: with which they were
/// measured. The other section stays as it is.
std::string merged_parameters(std::string_view text, std::string_view name, std::string_view backend,
                              const sluice::collectives::LogGP& costs);

}  // namespace bench
