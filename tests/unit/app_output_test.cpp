// SPDX-License-Identifier: Apache-2.0
// Arguments and results of applications: options, sizes, results, pictures.
#include "apps/common/image.hpp"
#include "apps/common/options.hpp"
#include "apps/common/progress.hpp"
#include "apps/common/report.hpp"
#include "apps/common/session.hpp"
#include "apps/common/sizes.hpp"
#include "apps/common/usage_error.hpp"
#include "apps/faces/reference.hpp"
#include "apps/faces/report.hpp"
#include "apps/heat/options.hpp"
#include "apps/heat/reference.hpp"
#include "apps/heat/report.hpp"
#include "apps/jacobi/options.hpp"
#include "apps/jacobi/reference.hpp"
#include "apps/jacobi/report.hpp"
#include "apps/life/options.hpp"
#include "apps/life/report.hpp"
#include "tests/unit/own_file.hpp"
#include "tests/unit/program.hpp"

#include <gtest/gtest.h>
#include <png.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <tuple>
#include <vector>

namespace apps {
namespace {

template <class Options>
Parsed parse_as(Parsed (*parse)(int, const char* const*, Options&), Options& options,
                std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "program");
  return parse(static_cast<int>(arguments.size()), arguments.data(), options);
}

TEST(StreamNames, are_those_of_the_library_and_an_older_one) {
  for (const char* const stream : {"program", "inline"}) {
    jacobi::Options options;
    options.common.stream = StreamKind::host;
    EXPECT_TRUE(parse_as(jacobi::parse, options, {"--stream", stream}).run) << stream;
    EXPECT_EQ(options.common.stream, StreamKind::inline_) << stream;
  }
  EXPECT_STREQ(name(StreamKind::inline_), "program");
  jacobi::Options options;
  const std::string help = parse_as(jacobi::parse, options, {"--help"}).text;
  EXPECT_TRUE(sluice::tests::contains(help, "cuda|host|program")) << help;
}

TEST(Output, of_a_program_that_is_killed_has_its_lines) {
  sluice::tests::Program program([] {
    print("a line of {}\n", 1);
    return ::raise(SIGKILL);
  });
  EXPECT_EQ(program.result().out, "a line of 1\n");
}

TEST(Output, that_could_not_be_flushed_is_an_error_at_the_end) {
  sluice::tests::Program program([] {
    if (std::freopen("/dev/full", "w", stdout) == nullptr) return 2;
    print("a line\n");
    try {
      flush_output();
    } catch (const std::system_error& error) {
      return error.code() == std::errc::no_space_on_device ? 0 : 3;
    }
    return 1;
  });
  EXPECT_EQ(program.result().code, 0);
}

/// Its steps smooth the field.
TEST(Picture, of_faces_shows_something_after_many_steps) {
  const faces::Problem problem = faces::make_problem(2, 8);
  for (const Index steps : {200, 1000}) {
    const std::vector<double> copies = faces::solve_serially(problem, steps);
    const auto [low, high] = faces::picture_ends(copies, problem);
    const Mesh mesh = problem.mesh();
    const Image image =
        draw(drawn_plane(std::span<const double>(copies), mesh), mesh.nx, mesh.ny, low, high, kDiverging);
    std::set<std::tuple<int, int, int>> colours;
    for (const Colour& colour : image.pixels) colours.insert({colour.red, colour.green, colour.blue});
    EXPECT_GE(colours.size(), 8U) << "after " << steps << " steps";
  }
}

TEST(Picture, of_faces_that_are_all_equal_is_drawn_too) {
  const faces::Problem problem = faces::make_problem(1, 2);
  const std::vector<double> copies(8, 3.0);
  const auto [low, high] = faces::picture_ends(copies, problem);
  EXPECT_LT(low, 3.0);
  EXPECT_GT(high, 3.0);
}

TEST(Options, nvidias_flags_have_one_dash) {
  jacobi::Options options;
  const Parsed parsed = parse_as(jacobi::parse, options,
                                 {"-niter", "70", "-nccheck", "3", "-nx", "16384", "-ny=512", "-csv", "--comm", "mpi"});
  EXPECT_TRUE(parsed.run) << parsed.text;
  EXPECT_EQ(options.iterations, 70);
  EXPECT_EQ(options.norm_every, 3);
  EXPECT_EQ(options.nx, 16384);
  EXPECT_EQ(options.ny, 512);
  EXPECT_TRUE(options.csv_line);
  EXPECT_TRUE(options.common.csv.empty());
  EXPECT_EQ(options.common.comm, Comm::mpi);
}

TEST(Options, csv_with_two_dashes_is_a_file) {
  jacobi::Options options;
  EXPECT_TRUE(parse_as(jacobi::parse, options, {"--csv", "file.csv", "--periodic", "xy"}).run);
  EXPECT_EQ(options.common.csv, "file.csv");
  EXPECT_FALSE(options.csv_line);
  EXPECT_TRUE(options.periodic_x && options.periodic_y);
}

TEST(Options, life_takes_negative_positions_and_short_flags) {
  life::Options options;
  const Parsed parsed = parse_as(
      life::parse, options,
      {"-n", "64", "-t", "9", "-F", "3", "-c", "none", "--rle", "o.rle", "--pattern", "p.rle", "--at", "-3,5"});
  EXPECT_TRUE(parsed.run) << parsed.text;
  EXPECT_EQ(options.nx, 64);
  EXPECT_EQ(options.ny, 64);
  EXPECT_EQ(options.generations, 9);
  EXPECT_EQ(options.at, (life::Point{-3, 5}));
  EXPECT_EQ(options.frames.write_every, 3);
  EXPECT_EQ(options.common.comm, Comm::none);
}

TEST(Options, backends_are_those_of_the_library) {
  jacobi::Options options;
  EXPECT_TRUE(parse_as(jacobi::parse, options, {"--backend", "threads,shm"}).run);
  EXPECT_EQ(options.common.backend, "threads,shm");
  const Parsed refused = parse_as(jacobi::parse, options, {"--backend", "shm,pigeon"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.text.find("--backend: there is no backend \"pigeon\""), std::string::npos) << refused.text;
}

TEST(Options, bad_usage_is_one_line_and_exit_code_2) {
  for (const std::vector<const char*>& arguments : {std::vector<const char*>{"--bogus"},
                                                    {"-nx", "two"},
                                                    {"-nx", "2"},
                                                    {"--comm", "pigeon"},
                                                    {"--stream", "x"},
                                                    {"--niter", "-1"},
                                                    {"stray"},
                                                    {"--nx"}}) {
    jacobi::Options options;
    const Parsed parsed = parse_as(jacobi::parse, options, arguments);
    EXPECT_FALSE(parsed.run) << arguments[0];
    EXPECT_EQ(parsed.exit_code, 2);
    EXPECT_EQ(parsed.text.find('\n'), parsed.text.size() - 1) << parsed.text;
  }
  life::Options options;
  for (const std::vector<const char*>& arguments : {std::vector<const char*>{"--rule", "B9"},
                                                    {"--random", "2"},
                                                    {"-F", "5"},
                                                    {"-F", "-1", "--rle", "a"},
                                                    {"-c", "pigeon"},
                                                    {"--backend", "pigeon"},
                                                    {"--at", "1,1"},
                                                    {"-n", "5", "--nx", "6"},
                                                    {"--pattern", "a", "--random", "0.5"},
                                                    {"--pattern", "a", "--at", "1"}})
    EXPECT_EQ(parse_as(life::parse, options, arguments).exit_code, 2) << arguments[0];
}

TEST(Options, numbers_that_make_no_sense_are_refused_in_a_short_line) {
  for (const char* fourier : {"nan", "0", "-1", "inf", "0.3"}) {
    heat::Options options;
    const Parsed parsed = parse_as(heat::parse, options, {"--fourier", fourier});
    EXPECT_EQ(parsed.exit_code, 2) << fourier;
    EXPECT_LT(parsed.text.size(), 100U) << parsed.text;
  }
  jacobi::Options options;
  EXPECT_EQ(parse_as(jacobi::parse, options, {"-t", "nan"}).exit_code, 2);
  EXPECT_TRUE(parse_as(jacobi::parse, options, {"-t", "-1"}).run) << "never reached, and that is a way to ask for it";
}

TEST(Options, to_verify_and_not_to_is_refused) {
  jacobi::Options options;
  EXPECT_EQ(parse_as(jacobi::parse, options, {"--no-verify", "--verify"}).exit_code, 2);
  EXPECT_EQ(parse_as(jacobi::parse, options, {"--verify", "--no-verify"}).exit_code, 2);
  EXPECT_TRUE(parse_as(jacobi::parse, options, {"--no-verify"}).run);
  EXPECT_EQ(options.common.verify, false);
}

TEST(Options, a_refused_command_line_leaves_no_timeline) {
  const std::string file = sluice::tests::own_file("refused_timeline.json");
  jacobi::Options options;
  EXPECT_EQ(parse_as(jacobi::parse, options, {"--trace", file.c_str(), "--nz", "5"}).exit_code, 2);
  EXPECT_FALSE(std::filesystem::exists(file));
  ::unsetenv("SLUICE_TRACE");
}

TEST(Options, help_is_no_error) {
  life::Options options;
  const Parsed parsed = parse_as(life::parse, options, {"--help"});
  EXPECT_FALSE(parsed.run);
  EXPECT_EQ(parsed.exit_code, 0);
  EXPECT_NE(parsed.text.find("--pattern"), std::string::npos);
}

TEST(Sizes, read_and_written) {
  EXPECT_EQ(parse_size("0"), 0U);
  EXPECT_EQ(parse_size("4096"), 4096U);
  EXPECT_EQ(parse_size("64k"), 65536U);
  EXPECT_EQ(parse_size("1M"), 1048576U);
  EXPECT_EQ(parse_size("2g"), 2147483648U);
  for (const char* text : {"", "k", "1kk", "-1", "1.5k", "1t", "99999999999999999999", "99999999999g"})
    EXPECT_THROW(parse_size(text), UsageError) << text;
  for (const std::size_t bytes : {0U, 1U, 1000U, 1024U, 65536U, 1048576U, 1048577U})
    EXPECT_EQ(parse_size(size_text(bytes)), bytes);
  EXPECT_EQ(size_text(65536), "64k");
}

Result some_result() {
  Result result;
  result.app = "life";
  result.comm = "sluice";
  result.backend = "shm";
  result.stream = "host";
  result.nx = 30;
  result.ny = 20;
  result.ranks = 4;
  result.steps = 10;
  result.create_s = 0.5;
  result.solve_s = 0.001;
  return result;
}

TEST(Report, json_has_the_promised_fields) {
  Result result = some_result();
  const auto skipped = nlohmann::json::parse(to_json(result));
  EXPECT_EQ(skipped["verification"], "skipped");
  EXPECT_TRUE(skipped["max_error"].is_null());
  EXPECT_TRUE(skipped["phases"].is_null());
  EXPECT_DOUBLE_EQ(skipped["step_us"], 100.0);
  result.phases = PhaseSeconds{1, 2, 3, 4, 5, 6};
  result.max_error = 0;
  const auto json = nlohmann::json::parse(to_json(result));
  for (const char* name : {"app", "comm", "backend", "stream", "nx", "ny", "nz", "ranks", "steps", "create_s",
                           "solve_s", "step_us", "phases", "verification", "max_error"})
    EXPECT_TRUE(json.contains(name)) << name;
  EXPECT_EQ(json["phases"]["wait"], 4.0);
  EXPECT_EQ(json["nz"], 1);
}

TEST(Report, csv_has_a_name_for_every_value) {
  const std::string csv = to_csv(some_result());
  const auto line_end = csv.find('\n');
  const auto commas = [](const std::string& text) { return std::ranges::count(text, ','); };
  EXPECT_EQ(commas(csv.substr(0, line_end)), commas(csv.substr(line_end)));
  EXPECT_EQ(std::ranges::count(csv, '\n'), 2);
}

TEST(Report, csv_has_nothing_for_what_is_not_known) {
  EXPECT_EQ(to_csv(some_result()).find("null"), std::string::npos) << to_csv(some_result());
}

TEST(Report, numbers_that_json_does_not_have_are_told_by_name) {
  Result result = some_result();
  result.max_error = std::numeric_limits<double>::infinity();
  result.more = {{"order", -std::numeric_limits<double>::infinity()},
                 {"error", std::numeric_limits<double>::quiet_NaN()}};
  const auto json = nlohmann::json::parse(to_json(result));
  EXPECT_EQ(json["max_error"], "inf");
  EXPECT_EQ(json["order"], "-inf");
  EXPECT_EQ(json["error"], "nan");
  EXPECT_NE(to_csv(result).find(",skipped,inf,-inf,nan\n"), std::string::npos) << to_csv(result);
}

TEST(Report, a_file_that_cannot_be_written_is_bad_usage) {
  EXPECT_THROW(check_writable("no/such/folder/file"), UsageError);
  EXPECT_THROW(check_writable(testing::TempDir()), UsageError);
  EXPECT_NO_THROW(check_writable(""));
}

TEST(Report, asking_whether_a_file_can_be_written_leaves_everything_as_it_was) {
  const std::string file = sluice::tests::own_file("writable_test.csv");
  check_writable(file);
  EXPECT_FALSE(std::filesystem::exists(file));
  write_text(file, "text");
  check_writable(file);
  EXPECT_EQ(std::filesystem::file_size(file), 4U);
  std::filesystem::remove(file);
}

TEST(Report, asking_follows_a_link_and_leaves_it_as_it_was) {
  const std::string target = sluice::tests::own_file("writable_target.csv");
  const std::string link = sluice::tests::own_file("writable_link.csv");
  std::filesystem::remove(link);
  std::filesystem::create_symlink(target, link);
  check_writable(link);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_FALSE(std::filesystem::exists(target));
  write_text(link, "text");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(std::filesystem::file_size(target), 4U);
  std::filesystem::remove(target);
  std::filesystem::remove(link);
  std::filesystem::create_symlink("no/such/folder/file", link);
  EXPECT_THROW(check_writable(link), UsageError);
  std::filesystem::remove(link);
}

TEST(Report, a_file_that_rank_0_cannot_write_is_bad_usage_on_all_ranks) {
  std::atomic<int> refused{0};
  const int code = sluice::run_threads(3, [&](sluice::Context& context) {
    EXPECT_NO_THROW(check_outputs(context, {}, {""}));
    try {
      check_outputs(context, {}, {"no/such/folder/file"});
    } catch (const UsageError&) {
      ++refused;
    }
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(refused.load(), 3);
}

TEST(Report, files_of_generations_are_numbered) {
  EXPECT_EQ(numbered("out/gun.v2.png", 120), "out/gun.v2_000120.png");
  EXPECT_EQ(numbered("gun", 1234567), "gun_1234567");
  EXPECT_EQ(numbered("", 3), "");
}

TEST(Progress, tells_rate_and_time_to_go) {
  EXPECT_EQ(progress_line(250, 1000, 1e6, 0.5), " 25 %  250 of 1000 steps, 5e+08 cells/s, 2 s to go");
  EXPECT_EQ(progress_line(0, 0, 1e6, 0.0), "100 %  0 of 0 steps, 0 cells/s, 0 s to go");
}

TEST(Image, colours_span_the_palette) {
  EXPECT_EQ(colour_at(kDiverging, 0), kDiverging.front());
  EXPECT_EQ(colour_at(kDiverging, 1), kDiverging.back());
  EXPECT_EQ(colour_at(kDiverging, 0.5), kDiverging[2]);
  EXPECT_EQ(colour_at(kDiverging, -3), kDiverging.front());
  EXPECT_EQ(colour_at(kDiverging, 3), kDiverging.back());
}

TEST(Image, large_fields_are_averaged_and_small_ones_enlarged) {
  const std::vector<double> large(3000 * 10, 1.0);
  const Image shrunk = draw<double>(large, 3000, 10, 0, 1, kCells);
  EXPECT_EQ(shrunk.width, 1000);
  EXPECT_EQ(shrunk.height, 4);
  EXPECT_EQ(shrunk.pixels.back(), kCells.back());
  const std::vector<double> two = {0.0, 1.0};
  const Image enlarged = draw<double>(two, 2, 1, 0, 1, kCells);
  EXPECT_EQ(enlarged.width, 512);
  EXPECT_EQ(enlarged.height, 256);
  EXPECT_EQ(enlarged.pixels.front(), kCells.front());
  EXPECT_EQ(enlarged.pixels.back(), kCells.back());
}

// The image that libpng reads from a file, which is removed.
Image read_png(const std::string& file) {
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  EXPECT_NE(png_image_begin_read_from_file(&png, file.c_str()), 0) << file;
  png.format = PNG_FORMAT_RGB;
  Image image{png.width, png.height, std::vector<Colour>(std::size_t{png.width} * png.height)};
  EXPECT_NE(png_image_finish_read(&png, nullptr, image.pixels.data(), 0, nullptr), 0) << file;
  std::filesystem::remove(file);
  return image;
}

TEST(Image, a_png_reads_back) {
  Image image{3, 2, {}};
  for (std::uint8_t i = 0; i < 6; ++i) image.pixels.push_back({i, static_cast<std::uint8_t>(10 * i), 200});
  const std::string file = sluice::tests::own_file("image_test.png");
  write_png(file, image);
  const Image read = read_png(file);
  EXPECT_EQ(read.width, 3);
  EXPECT_EQ(read.height, 2);
  EXPECT_EQ(read.pixels, image.pixels);
}

std::size_t colours_in(const std::string& file) {
  std::set<std::tuple<int, int, int>> colours;
  for (const Colour& pixel : read_png(file).pixels) colours.emplace(pixel.red, pixel.green, pixel.blue);
  return colours.size();
}

TEST(Image, of_three_dimensions_shows_something) {
  heat::Options heat;
  heat.nx = heat.ny = heat.nz = 25;
  heat.steps = 4;
  heat.fourier = 0.125;
  heat.common.image = sluice::tests::own_file("volume_test.png");
  for (const auto start : {heat::Start::sine, heat::Start::spots}) {
    heat.start = start;
    heat::Solution solution{{}, {}, {}, heat::solve_serially(heat.problem(), heat.steps)};
    EXPECT_EQ(heat::report(heat, solution), 0);
    EXPECT_GT(colours_in(heat.common.image), 20U) << static_cast<int>(start);
  }
  jacobi::Options jacobi;
  jacobi.nx = jacobi.ny = jacobi.nz = 25;
  jacobi.periodic_y = false;
  jacobi.common.image = heat.common.image;
  jacobi::Solution solution{{}, jacobi::solve_serially(jacobi.problem(), 200)};
  solution.result.steps = 200;
  EXPECT_EQ(jacobi::report(jacobi, solution), 0);
  EXPECT_GT(colours_in(jacobi.common.image), 20U);
}

TEST(Image, a_png_that_cannot_be_written_is_an_error) {
  EXPECT_THROW(write_png("no/such/folder/file.png", {1, 1, {{1, 2, 3}}}), std::runtime_error);
}

}  // namespace
}  // namespace apps
