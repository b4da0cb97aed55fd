// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/options.hpp"

#include <sluice/sluice.hpp>

#include <functional>

namespace apps {

/// What a rank does. It returns the exit code of the program: 0, or 1 if the verification failed.
using RankBody = std::function<int(sluice::Context&)>;

/// The end of every application's main: starts the ranks and runs `body` in each, or, where `parsed` says so, has one
/// rank print that text. A UsageError is printed once, as "NAME: what", with exit code 2.
int run_program(int argc, char** argv, const char* name, const Parsed& parsed, const std::string& backend,
                const RankBody& body);

}  // namespace apps
