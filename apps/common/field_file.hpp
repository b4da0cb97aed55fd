// SPDX-License-Identifier: Apache-2.0
// A whole field as an array of NumPy, for programs that draw or compare it (docs/plots/field.py).
#pragma once

#include "apps/common/decomposition.hpp"

#include <span>
#include <string>

namespace apps {

/// Writes a whole field, unless the name of the file is empty: an array [y][x], in three dimensions [z][y][x], of
/// records {value, rank}. `rank` is the rank that updates the cell. T is double or std::uint8_t.
/// @throws std::runtime_error that names the file
template <class T>
void write_field(const std::string& file, std::span<const T> cells, const Decomposition& decomposition);

}  // namespace apps
