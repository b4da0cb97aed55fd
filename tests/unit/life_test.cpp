// SPDX-License-Identifier: Apache-2.0
// Known facts about known patterns, on 1, 2, 3 and 4 ranks and both kinds of stream.
#include "apps/common/space.hpp"
#include "apps/life/reference.hpp"
#include "apps/life/solver.hpp"
#include "tests/unit/serial.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace life {
namespace {

using Cells = std::set<std::pair<Index, Index>>;

World world_of(const std::string& pattern, Index n) {
  Options options;
  options.pattern = std::string(SLUICE_PATTERNS) + "/" + pattern + ".rle";
  options.nx = options.ny = n;
  return make_world(options);
}

struct Setting {
  int ranks;
  apps::StreamKind stream;
};

Solution run(const World& world, Index generations, const Setting& setting) {
  apps::serial();
  Options options;
  options.generations = generations;
  options.common.stream = setting.stream;
  Solution at_root;
  const int code = sluice::run_threads(setting.ranks, [&](sluice::Context& context) {
    Simulation<Kokkos::Serial> simulation(context, options.common, setup(options, world), Model(world.rule),
                                          apps::serial());
    Solution solution = solve(simulation, options, world, true);
    if (context.rank() == 0) at_root = std::move(solution);
  });
  EXPECT_EQ(code, 0);
  return at_root;
}

Cells alive(const std::vector<Cell>& cells, Index nx) {
  Cells found;
  for (std::size_t i = 0; i < cells.size(); ++i)
    if (cells[i] != 0) found.emplace(static_cast<Index>(i) % nx, static_cast<Index>(i) / nx);
  return found;
}

Cells moved(const Cells& cells, Index dx, Index dy, Index n) {
  Cells result;
  for (const auto& [x, y] : cells) result.emplace((x + dx + n) % n, (y + dy + n) % n);
  return result;
}

class Life : public testing::TestWithParam<Setting> {
 protected:
  static Cells after(const World& world, Index generations) {
    return alive(run(world, generations, GetParam()).cells, world.nx);
  }
};

TEST_P(Life, glider_moves_by_one_cell_every_four_generations) {
  const World world = world_of("glider", 24);
  const Cells start = after(world, 0);
  EXPECT_EQ(after(world, 4), moved(start, 1, 1, 24));
  EXPECT_EQ(after(world, 4 * 24), start);  // around the torus, through every block and corner
}

TEST_P(Life, lightweight_spaceship_moves_by_two_cells_every_four_generations) {
  const World world = world_of("lwss", 22);
  const Cells start = after(world, 0);
  const Cells end = after(world, 4);
  EXPECT_TRUE(end == moved(start, -2, 0, 22) || end == moved(start, 2, 0, 22));
}

TEST_P(Life, pulsar_has_period_three) {
  const World world = world_of("pulsar", 21);
  const Cells start = after(world, 0);
  EXPECT_NE(after(world, 1), start);
  EXPECT_EQ(after(world, 3), start);
}

TEST_P(Life, gosper_gun_emits_a_glider_every_thirty_generations) {
  const World world = world_of("gosper_gun", 128);
  const auto population = [&](Index generation) { return after(world, generation).size(); };
  EXPECT_EQ(population(60), population(30) + 5);
  EXPECT_EQ(population(90), population(60) + 5);
  EXPECT_EQ(population(120), population(90) + 5);
}

TEST_P(Life, diehard_vanishes_at_generation_130) {
  const World world = world_of("diehard", 64);
  EXPECT_EQ(run(world, 129, GetParam()).population, 2U);
  EXPECT_EQ(run(world, 130, GetParam()).population, 0U);
}

TEST(LifeFacts, r_pentomino_has_116_cells_at_generation_1103) {
  EXPECT_EQ(run(world_of("r_pentomino", 640), 1103, {4, apps::StreamKind::inline_}).population, 116U);
}

TEST_P(Life, replicator_makes_two_of_itself_in_twelve_generations) {
  const World world = world_of("replicator", 60);
  EXPECT_EQ(world.rule, parse_rule("B36/S23"));
  const Cells start = after(world, 0);
  EXPECT_EQ(after(world, 12).size(), 2 * start.size());
}

TEST_P(Life, fields_on_the_way_are_those_of_their_generations) {
  const World world{.nx = 20, .ny = 13, .rule = {}, .cells = {}, .density = 0.4, .seed = 5};
  apps::serial();
  Options options;
  options.generations = 11;
  options.frames.write_every = 4;
  options.common.stream = GetParam().stream;
  std::vector<Index> written;
  const int code = sluice::run_threads(GetParam().ranks, [&](sluice::Context& context) {
    Simulation<Kokkos::Serial> simulation(context, options.common, setup(options, world), Model(world.rule),
                                          apps::serial());
    solve(simulation, options, world, false, [&](Index generation, std::span<const Cell> cells) {
      written.push_back(generation);
      EXPECT_TRUE(std::ranges::equal(cells, live_serially(world, generation))) << generation;
    });
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(written, (std::vector<Index>{4, 8}));
}

// The vectorised update against the plain one, for rules with few and many cases and widths around a vector's and a
// strip's.
TEST_P(Life, every_rule_and_width_is_the_serial_one) {
  for (const char* rule : {"B3/S23", "B36/S23", "B/S", "B012345678/S", "B0/S012345678", "B2/S", "B1357/S1357", "B3/S"})
    for (const Index nx : {5, 16, 17, 63, 64, 65, 1100}) {
      const World world{.nx = nx, .ny = 9, .rule = parse_rule(rule), .cells = {}, .density = 0.4, .seed = 7};
      ASSERT_EQ(run(world, 5, GetParam()).cells, live_serially(world, 5)) << rule << " on " << nx << " x 9";
    }
}

TEST(LifeWorld, is_the_same_however_it_is_divided) {
  const World world{.nx = 10, .ny = 8, .rule = {}, .cells = {{-1, 3}, {11, 9}}, .density = 0.5, .seed = 3};
  std::vector<Cell> whole(80);
  populate(world, {.nx = 10, .ny = 8}, whole.data(), 10);
  std::vector<Cell> part(12);
  populate(world, {.x = 6, .y = 5, .nx = 4, .ny = 3}, part.data(), 4);
  for (Index y = 0; y < 3; ++y)
    for (Index x = 0; x < 4; ++x) EXPECT_EQ(part[y * 4 + x], whole[(y + 5) * 10 + x + 6]);
  EXPECT_EQ(whole[3 * 10 + 9], 1);
  EXPECT_EQ(whole[1 * 10 + 1], 1);
}

std::string name_of(const testing::TestParamInfo<Setting>& info) {
  return std::to_string(info.param.ranks) + "_ranks_" +
         (info.param.stream == apps::StreamKind::host ? "host" : "inline");
}

INSTANTIATE_TEST_SUITE_P(Ranks, Life,
                         testing::Values(Setting{1, apps::StreamKind::inline_}, Setting{1, apps::StreamKind::host},
                                         Setting{2, apps::StreamKind::inline_}, Setting{2, apps::StreamKind::host},
                                         Setting{3, apps::StreamKind::inline_}, Setting{4, apps::StreamKind::inline_},
                                         Setting{4, apps::StreamKind::host}),
                         name_of);

}  // namespace
}  // namespace life
