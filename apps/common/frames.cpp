// SPDX-License-Identifier: Apache-2.0
#include "apps/common/frames.hpp"

#include "apps/common/movie.hpp"
#include "apps/common/options.hpp"

#include <CLI/CLI.hpp>

#include <fmt/core.h>

#include <filesystem>

namespace apps {

void add_frame_options(CLI::App& app, FrameOptions& options, const std::string& files) {
  app.add_option("--movie", options.movie,
                 "write a frame for each step, or for each that -F says and the last, to this file")
      ->option_text("FILE.gif");
  app.add_option("-F,--write-freq", options.write_every,
                 "write " + files + " every so many steps too, as NAME_STEP; 0: only the last")
      ->transform(whole_number())
      ->capture_default_str();
}

void check(const FrameOptions& options, bool any_file) {
  if (options.write_every > 0 && !any_file && options.movie.empty())
    throw CLI::ValidationError("--write-freq", "what is to be written? No option names a file");
  if (!options.movie.empty() && !can_write_gif())
    throw CLI::ValidationError("--movie", "this program was built without giflib");
}

std::string numbered(const std::string& file, Index step) {
  if (file.empty()) return "";
  const std::filesystem::path path(file);
  const std::string name = fmt::format("{}_{:06d}{}", path.stem().string(), step, path.extension().string());
  return (path.parent_path() / name).string();
}

}  // namespace apps
