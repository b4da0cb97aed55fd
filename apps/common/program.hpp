// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/options.hpp"

#include <sluice/sluice.hpp>

#include <functional>
#include <string>

namespace apps {

/// The body of a rank. Returns the exit code of the program: 0, or 1 if the verification failed.
using RankBody = std::function<int(sluice::Context&)>;

/// The end of every application's main: starts the ranks and runs `body` in each, or, if `parsed` says so, lets one
/// rank print that text. A UsageError is printed once, as "NAME: what", with exit code 2. Output that cannot be written
/// is exit code 1.
int run_program(int argc, char** argv, const char* name, const Parsed& parsed, const std::string& backend,
                const RankBody& body);

/// True if any rank has a fault, for example a file that only its host lacks. The first rank with a fault reports it.
/// All ranks call it.
bool is_refused_by_any(sluice::Context& context, const std::string& fault);

}  // namespace apps
