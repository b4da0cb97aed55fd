// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/common/frames.hpp"
#include "apps/common/image.hpp"
#include "apps/common/movie.hpp"

#include <functional>
#include <optional>
#include <span>
#include <utility>

namespace apps {

/// The files of a field that rank 0 writes while a run goes on: those of some steps, and a movie.
template <class T>
class StepFiles {
 public:
  /// Writes the field after a step to files that have the step in their names.
  using WriteFiles = std::function<void(Index step, std::span<const T> cells)>;

  /// @param last  the last step of the run
  /// @param low   with `high`, the values that span the palette of the movie
  StepFiles(const FrameOptions& frames, Index last, const Mesh& mesh, double low, double high, Palette palette,
            WriteFiles write_files)
      : frames_(frames), last_(last), mesh_(mesh), low_(low), high_(high), palette_(palette),
        write_files_(std::move(write_files)) {}

  /// Writes the files that the options request for this step. In three dimensions a frame shows the plane at a quarter
  /// of z.
  void write(Index step, std::span<const T> cells) {
    if (frames_.writes(step)) write_files_(step, cells);
    if (!frames_.shows(step, last_)) return;
    if (!movie_) movie_.emplace(frames_.movie, mesh_.nx, mesh_.ny, low_, high_, palette_);
    movie_->add(drawn_plane(cells, mesh_));
  }

  /// Ends the movie.
  void close() {
    if (movie_) movie_->close();
  }

 private:
  const FrameOptions frames_;
  const Index last_;
  const Mesh mesh_;
  const double low_;
  const double high_;
  const Palette palette_;
  const WriteFiles write_files_;
  std::optional<Movie> movie_;
};

}  // namespace apps
