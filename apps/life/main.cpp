// SPDX-License-Identifier: Apache-2.0
#include "apps/common/host_space.hpp"
#include "apps/common/image.hpp"
#include "apps/common/program.hpp"
#include "apps/common/report.hpp"
#include "apps/common/verify.hpp"
#include "apps/life/options.hpp"
#include "apps/life/reference.hpp"
#include "apps/life/solver.hpp"

#include <fmt/core.h>

namespace {

using life::Options;

double updates(const Options& options) {
  return static_cast<double>(options.nx) * static_cast<double>(options.ny) * static_cast<double>(options.generations);
}

void print_header(const Options& options, const life::World& world) {
  fmt::print("Life ({}): {} generations on a torus of {} x {} cells\n", life::rule_text(world.rule),
             options.generations, options.nx, options.ny);
}

void verify(const Options& options, const life::World& world, life::Solution& solution) {
  const std::string why_not = apps::why_not_verified(options.common, updates(options));
  if (!why_not.empty()) {
    fmt::print("VERIFICATION: skipped ({})\n", why_not);
    return;
  }
  const auto expected = life::live_serially(world, options.generations);
  const auto comparison = apps::compare<life::Cell>(solution.cells, expected);
  solution.result.verification = comparison.passed() ? "passed" : "failed";
  solution.result.max_error = comparison.max_error;
  fmt::print("{}\n", apps::verification_line(comparison, options.nx, expected.size()));
}

// Rank 0's last duties. Returns the exit code.
int report(const Options& options, const life::World& world, life::Solution& solution) {
  apps::Result& result = solution.result;
  fmt::print("{} ranks, {} steps, comm {}, backend {}, stream {}\n{}population: {}\n", result.ranks, result.steps,
             result.comm, result.backend, result.stream, apps::to_text(result, updates(options)), solution.population);
  verify(options, world, solution);
  apps::write_results(result, options.common);
  if (!options.common.image.empty())
    apps::write_png(options.common.image,
                    apps::draw<life::Cell>(solution.cells, options.nx, options.ny, 0, 1, apps::kCells));
  if (!options.rle.empty())
    apps::write_text(options.rle, life::to_rle(solution.cells, options.nx, options.ny, world.rule));
  return result.verification == "failed" ? 1 : 0;
}

template <class Space>
int run_rank(sluice::Context& context, const Options& options, const Space& space) {
  apps::check(options.common);
  apps::check_outputs(options.common);
  apps::check_writable(options.rle);
  const life::World world = life::make_world(options);
  const bool first = context.rank() == 0;
  const bool verified = apps::why_not_verified(options.common, updates(options)).empty();
  const bool want_field = verified || !options.common.image.empty() || !options.rle.empty();
  life::Solution solution;
  {
    life::Simulation<Space> simulation(context, options.common, life::setup(options, world), life::Model(world.rule),
                                       space);
    if (first) print_header(options, world);
    solution = life::solve(simulation, options, world, want_field);
  }
  return first ? report(options, world, solution) : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const apps::Parsed parsed = life::parse(argc, argv, options);
  const Kokkos::ScopeGuard kokkos(apps::kokkos_settings());
  return apps::run_program(argc, argv, "life", parsed, options.common.backend, [&](sluice::Context& context) {
    return apps::with_host_space([&](const auto& space) { return run_rank(context, options, space); });
  });
}
