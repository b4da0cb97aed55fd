// SPDX-License-Identifier: Apache-2.0
// A GIF file that shows how a field changes, one frame at a time.
#pragma once

#include "apps/common/image.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace apps {

/// True if this program was built with giflib.
bool can_write_gif();

class Movie {
 public:
  /// Begins a movie of a field of nx x ny cells whose values from `low` to `high` span the palette.
  /// @throws std::runtime_error that names the file
  Movie(const std::string& file, Index nx, Index ny, double low, double high, Palette palette);
  ~Movie();
  Movie(const Movie&) = delete;
  Movie& operator=(const Movie&) = delete;

  /// Appends a frame, shown for 50 ms. @throws std::runtime_error that names the file
  template <class T>
  void add(std::span<const T> cells) {
    add_values(pixel_values(cells, nx_, ny_));
  }
  /// Ends the file. @throws std::runtime_error that names the file
  void close();

 private:
  class File;
  void add_values(std::span<const double> values);

  const Index nx_;
  const Index ny_;
  std::unique_ptr<File> file_;
};

}  // namespace apps
