// SPDX-License-Identifier: Apache-2.0
// A field that is wrong in one bit: what the program then says, to people and to scripts, and how it ends.
#include "apps/common/program.hpp"
#include "apps/common/verify.hpp"
#include "apps/faces/reference.hpp"
#include "apps/faces/report.hpp"
#include "apps/heat/reference.hpp"
#include "apps/heat/report.hpp"
#include "apps/jacobi/reference.hpp"
#include "apps/jacobi/report.hpp"
#include "apps/life/reference.hpp"
#include "apps/life/report.hpp"
#include "tests/unit/own_file.hpp"
#include "tests/unit/program.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace {

using sluice::tests::contains;

struct Ending {
  sluice::tests::Result program;
  nlohmann::json json;
};

// Three ranks, the first of which reports, from the start to the end of a main. `json` is the file that it writes.
Ending end_of(const std::string& json, const std::function<int()>& report) {
  sluice::tests::Program program([&] {
    ::setenv("SLUICE_THREADS", "3", 1);
    const int code = apps::run_program(0, nullptr, "program", {}, "",
                                       [&](sluice::Context& context) { return context.rank() == 0 ? report() : 0; });
    std::fflush(nullptr);
    return code;
  });
  Ending ending{program.result(), {}};
  std::ifstream(json) >> ending.json;
  std::filesystem::remove(json);
  return ending;
}

void expect_failed(const Ending& ending, const std::string& line) {
  EXPECT_EQ(ending.program.code, 1);
  EXPECT_TRUE(contains(ending.program.out, "VERIFICATION: FAILED " + line)) << ending.program.out;
  EXPECT_EQ(ending.json["verification"], "failed");
  EXPECT_GT(ending.json["max_error"], 0.0);
}

void expect_passed(const Ending& ending) {
  EXPECT_EQ(ending.program.code, 0);
  EXPECT_TRUE(contains(ending.program.out, "VERIFICATION: PASSED\n")) << ending.program.out;
  EXPECT_EQ(ending.json["verification"], "passed");
  EXPECT_EQ(ending.json["max_error"], 0.0);
}

Ending end_of_jacobi(std::uint64_t flipped_bits) {
  jacobi::Options options;
  options.nx = 12;
  options.ny = 10;
  options.common.json = sluice::tests::own_file("verification_jacobi.json");
  jacobi::Solution solution{{}, jacobi::solve_serially(options.problem(), 20)};
  solution.result.steps = 20;
  solution.unknowns[23] = std::bit_cast<double>(std::bit_cast<std::uint64_t>(solution.unknowns[23]) ^ flipped_bits);
  return end_of(options.common.json, [&] { return jacobi::report(options, solution); });
}

Ending end_of_faces(std::uint64_t flipped_bits) {
  faces::Options options;
  options.nodes = 3;
  options.common.json = sluice::tests::own_file("verification_faces.json");
  const faces::Problem problem = faces::make_problem(2, options.nodes);
  faces::Solution solution{{}, faces::solve_serially(problem, 4)};
  solution.result.steps = 4;
  solution.result.ranks = 2;
  solution.copies[22] = std::bit_cast<double>(std::bit_cast<std::uint64_t>(solution.copies[22]) ^ flipped_bits);
  return end_of(options.common.json, [&] { return faces::report(options, problem, solution); });
}

heat::Options small_heat() {
  heat::Options options;
  options.nx = 9;
  options.ny = 8;
  options.nz = 5;
  options.steps = 6;
  options.fourier = 0.125;
  options.common.json = sluice::tests::own_file("verification_heat.json");
  return options;
}

Ending end_of_heat(std::uint64_t flipped_bits, double heat_after) {
  const heat::Options options = small_heat();
  heat::Solution solution{{}, heat::Balance{360, heat_after}, {}, heat::solve_serially(options.problem(), 6)};
  solution.cells[100] = std::bit_cast<double>(std::bit_cast<std::uint64_t>(solution.cells[100]) ^ flipped_bits);
  return end_of(options.common.json, [&] { return heat::report(options, solution); });
}

Ending end_of_life(unsigned flipped_bits) {
  life::Options options;
  options.nx = 9;
  options.ny = 7;
  options.generations = 5;
  options.common.json = sluice::tests::own_file("verification_life.json");
  const life::World world = life::make_world(options);
  life::Solution solution{{}, 0, life::live_serially(world, 5)};
  solution.cells[11] = static_cast<life::Cell>(solution.cells[11] ^ flipped_bits);
  return end_of(options.common.json, [&] { return life::report(options, world, solution); });
}

TEST(Verification, of_jacobi_fails_by_one_bit) {
  expect_passed(end_of_jacobi(0));
  expect_failed(end_of_jacobi(1), "1 of 80 cells differ, the first at x=3 y=2, max_abs_err=");
}

TEST(Verification, of_faces_fails_by_one_bit) {
  expect_passed(end_of_faces(0));
  expect_failed(end_of_faces(1), "1 of 54 cells differ, the first at x=1 y=1 z=2, max_abs_err=");
}

TEST(Verification, of_heat_fails_by_one_bit) {
  expect_passed(end_of_heat(0, 360));
  expect_failed(end_of_heat(1, 360), "1 of 360 cells differ, the first at x=1 y=3 z=1, max_abs_err=");
}

TEST(Verification, of_heat_fails_by_heat_that_was_lost) {
  const Ending ending = end_of_heat(0, 359.999);
  EXPECT_EQ(ending.program.code, 1);
  EXPECT_TRUE(contains(ending.program.out, "CONSERVATION: FAILED\n")) << ending.program.out;
  EXPECT_EQ(ending.json["verification"], "failed");
  EXPECT_GT(ending.json["heat_change"], 1e-6);
}

TEST(Verification, of_heat_passes_where_there_was_none) {
  heat::Options options = small_heat();
  options.start = heat::Start::spots;
  options.nx = options.ny = options.nz = 3;
  heat::Solution solution{{}, heat::Balance{0, 0}, {}, heat::solve_serially(options.problem(), 6)};
  const Ending ending = end_of(options.common.json, [&] { return heat::report(options, solution); });
  expect_passed(ending);
  EXPECT_TRUE(contains(ending.program.out, "CONSERVATION: PASSED\n")) << ending.program.out;
  EXPECT_EQ(ending.json["heat_change"], 0.0);
}

TEST(Verification, of_heat_fails_by_heat_that_came_from_nowhere) {
  EXPECT_FALSE((heat::Balance{0, 1e-300}.kept(1)));
  EXPECT_FALSE((heat::Balance{0, std::numeric_limits<double>::quiet_NaN()}.kept(1)));
}

TEST(Verification, within_a_tolerance) {
  const std::vector<double> expected = {1.0, 2.0, 3.0, 4.0};
  const auto with = [&](double second) {
    std::vector<double> found = expected;
    found[1] = second;
    return apps::compare<double>(found, expected, 0.5);
  };
  EXPECT_TRUE(with(2.25).passed());
  EXPECT_EQ(with(2.25).max_error, 0.25);
  EXPECT_TRUE(with(2.5).passed());
  EXPECT_FALSE(with(2.5001).passed());
  EXPECT_FALSE(with(1.25).passed());
  EXPECT_EQ(with(1.25).first, 1);
  const auto no_number = with(std::numeric_limits<double>::quiet_NaN());
  EXPECT_FALSE(no_number.passed());
  EXPECT_EQ(no_number.max_error, std::numeric_limits<double>::infinity());
}

TEST(Verification, a_difference_that_is_no_number_is_not_hidden_by_a_later_one) {
  const std::vector<double> expected = {1.0, 2.0};
  const std::vector<double> found = {std::numeric_limits<double>::quiet_NaN(), 2.5};
  EXPECT_EQ(apps::compare<double>(found, expected, 1).max_error, std::numeric_limits<double>::infinity());
}

TEST(Verification, of_life_fails_by_one_cell) {
  expect_passed(end_of_life(0));
  expect_failed(end_of_life(1), "1 of 63 cells differ, the first at x=2 y=1, max_abs_err=1");
}

}  // namespace
