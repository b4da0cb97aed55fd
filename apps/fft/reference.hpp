// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/pencils.hpp"

#include <vector>

namespace fft {

using apps::Complex;
using apps::Index;

/// The value of a cell before the transform: without any symmetry.
Complex initial(const apps::Mesh& mesh, Index x, Index y, Index z);

/// The transform of all cells by its definition, axis by axis; row by row and plane by plane.
std::vector<Complex> transform_serially(const apps::Mesh& mesh);
/// How many products that takes.
double products(const apps::Mesh& mesh);

}  // namespace fft
