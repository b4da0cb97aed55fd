// SPDX-License-Identifier: Apache-2.0
// Options for files of the field that a run writes before its end.
#pragma once

#include "apps/common/mesh.hpp"

#include <algorithm>
#include <string>

namespace CLI {
class App;
}  // namespace CLI

namespace apps {

struct FrameOptions {
  std::string movie;      ///< file to write: a frame for each step, or for each step of `write_every`
  Index write_every = 0;  ///< write the other files every so many steps, too; 0: only at the end

  /// True if `step` is one at which files are written.
  bool writes(Index step) const { return write_every > 0 && step > 0 && step % write_every == 0; }
  bool shows(Index step, Index last) const {
    return !movie.empty() && (step % std::max<Index>(write_every, 1) == 0 || step == last);
  }
};

/// `--movie` and `-F`. `files`: the names of the options for other files, for the help text.
void add_frame_options(CLI::App& app, FrameOptions& options, const std::string& files);

/// Refuses `-F` without any of the files, and a movie that this program cannot write.
/// @throws CLI::ValidationError, which Parsed turns into bad usage
void check(const FrameOptions& options, bool any_file);

/// "gun_000120.png" for "gun.png"; empty for an empty name.
std::string numbered(const std::string& file, Index step);

}  // namespace apps
