// SPDX-License-Identifier: Apache-2.0
// Stands in for movie_gif.cpp in a build without giflib.
#include "apps/common/movie.hpp"

namespace apps {

class Movie::File {};

bool can_write_gif() { return false; }

Movie::Movie(const std::string& /*file*/, Index nx, Index ny, double /*low*/, double /*high*/, Palette /*palette*/)
    : nx_(nx), ny_(ny) {}  // the options refuse a file name in this build
Movie::~Movie() = default;

void Movie::add_values(std::span<const double> /*values*/) {}
void Movie::close() {}

}  // namespace apps
