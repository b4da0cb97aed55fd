// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <system_error>

namespace sluice::base {

/// Returns the error for a thread that could not be started: its purpose `whose`, and the lacking resource.
/// @param error  errno of the start
std::system_error no_thread(const std::string& whose, int error);

}  // namespace sluice::base
