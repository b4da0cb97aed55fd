// SPDX-License-Identifier: Apache-2.0
#include "apps/life/options.hpp"

#include "apps/common/usage_error.hpp"

#include <CLI/CLI.hpp>

#include <charconv>
#include <cmath>
#include <stdexcept>
#include <string_view>

namespace life {
namespace {

bool take_number(std::string_view& text, Index& number) {
  const auto [number_end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  text.remove_prefix(static_cast<std::size_t>(number_end - text.data()));
  return error == std::errc();
}

// "X,Y"
Point parse_point(std::string_view text) {
  Point point;
  std::string_view rest = text;
  const bool has_x = take_number(rest, point.x) && rest.starts_with(',');
  if (has_x) rest.remove_prefix(1);
  if (!has_x || !take_number(rest, point.y) || !rest.empty())
    throw CLI::ValidationError("--at", "'" + std::string(text) + "' is no position X,Y");
  return point;
}

StatedRule parse_rule_option(const std::string& text) {
  try {
    return parse_stated_rule(text);
  } catch (const std::invalid_argument& error) {
    throw CLI::ValidationError("--rule", error.what());
  }
}

Chosen chosen(const Options& options) { return {options.nx, options.ny, options.rule}; }

void add_size_options(CLI::App& app, Options& options) {
  const CLI::Validator cells = apps::whole_number(1, kLargestSide);
  app.add_option("--nx", options.nx, "cells along x; default: those of the rule's torus, else 128")->transform(cells);
  app.add_option("--ny", options.ny, "cells along y")->transform(cells);
  app.add_option_function<Index>(
         "-n,--ncells", [&options](const Index& n) { options.nx = options.ny = n; }, "cells along x and y")
      ->transform(cells)
      ->excludes("--nx")
      ->excludes("--ny");
  app.add_option("-t,--timesteps", options.generations, "generations")
      ->transform(apps::whole_number())
      ->capture_default_str();
}

void add_world_options(CLI::App& app, Options& options) {
  CLI::Option* const pattern =
      app.add_option("--pattern", options.pattern, "read this pattern: RLE, plaintext, Life 1.05 or 1.06")
          ->option_text("FILE");
  app.add_option_function<std::string>(
         "--at", [&options](const std::string& text) { options.at = parse_point(text); },
         "where its upper left corner goes; default: in the middle")
      ->needs(pattern)
      ->option_text("X,Y");
  app.add_option("--random", options.density, "without a pattern, make this part of the cells alive")
      ->check(CLI::Range(0.0, 1.0))
      ->excludes(pattern)
      ->option_text("DENSITY");
  app.add_option("--seed", options.seed, "of the random cells")
      ->transform(apps::whole_number<std::uint64_t>())
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--rule", [&options](const std::string& text) { options.rule = parse_rule_option(text); },
         "such as B36/S23 or B3/S23:T30,20; default: the pattern's, else B3/S23")
      ->option_text("RULE");
}

void add_output_options(CLI::App& app, Options& options) {
  app.add_option("--rle", options.rle, "write the last generation to this file")->option_text("FILE.rle");
  apps::add_frame_options(app, options.frames, "--image, --field and --rle");
  app.callback([&options] {
    if (std::isnan(options.density)) throw CLI::ValidationError("--random", "nan is no part of the cells");
    if (options.rule && options.rule->torus && *options.rule->torus != sides(chosen(options), {}))
      throw CLI::ValidationError("--rule", "its torus is of another size than --nx and --ny say");
    apps::check(options.frames, !options.common.image.empty() || !options.common.field.empty() || !options.rle.empty());
  });
}

}  // namespace

apps::Parsed parse(int argc, const char* const* argv, Options& options) {
  CLI::App app("Plays Conway's Game of Life, or another rule that counts neighbours, on a torus.", "life");
  add_size_options(app, options);
  add_world_options(app, options);
  add_output_options(app, options);
  apps::add_common_options(app, options.common, "-c,--comm,--comm-space");
  app.footer("Long options may have one dash, as in -nx 256.");
  return apps::parse(app, argc, argv);
}

World make_world(const Options& options) {
  Pattern pattern;
  if (!options.pattern.empty()) pattern = read_pattern_file(options.pattern, chosen(options));
  const auto [nx, ny] = sides(chosen(options), pattern.rule);
  const StatedRule stated = options.rule.value_or(pattern.rule.value_or(StatedRule{}));
  World world{.nx = nx, .ny = ny, .rule = stated.rule, .cells = std::move(pattern.cells)};
  if (options.pattern.empty()) {
    world.density = options.density;
    world.seed = options.seed;
  }
  const Point at = options.at.value_or(Point{(nx - pattern.nx) / 2, (ny - pattern.ny) / 2});
  // The remainders prevent an overflow of the sums.
  for (Point& cell : world.cells) cell = {cell.x + at.x % nx, cell.y + at.y % ny};
  return world;
}

}  // namespace life
