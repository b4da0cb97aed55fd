// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <system_error>

namespace sluice::base {

/// The error of a thread that could not be started: `whose` it would have been, and what is missing.
/// @param error  the errno that its start gave
std::system_error no_thread(const std::string& whose, int error);

}  // namespace sluice::base
