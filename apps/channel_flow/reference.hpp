// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/channel_flow/problem.hpp"

#include <array>
#include <vector>

namespace channel_flow {

/// The velocity after so many steps, on one core and with transforms by their definition: each component row by row and
/// plane by plane.
std::array<std::vector<double>, kComponents> solve_serially(const apps::Mesh& mesh, Index steps);
/// How many products that takes.
double products(const apps::Mesh& mesh, Index steps);

}  // namespace channel_flow
