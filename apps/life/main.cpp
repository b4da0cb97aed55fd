// SPDX-License-Identifier: Apache-2.0
#include "apps/common/program.hpp"
#include "apps/common/space.hpp"
#include "apps/common/usage_error.hpp"
#include "apps/life/options.hpp"
#include "apps/life/report.hpp"
#include "apps/life/solver.hpp"

#include <span>
#include <string>

namespace {

using life::Options;

template <class Space>
int run_rank(sluice::Context& context, const Options& options, const Space& space) {
  apps::check(options.common);
  apps::check_outputs(context, options.common, {options.rle, options.frames.movie});
  life::World world;
  std::string fault;
  try {
    world = life::make_world(options);
  } catch (const apps::UsageError& error) {
    fault = std::string("life: ") + error.what();
  }
  if (apps::is_refused_by_any(context, fault)) return 2;
  const bool first = context.rank() == 0;
  life::Solution solution;
  apps::StepFiles<life::Cell> step_files = life::step_files(options, world, context.size());
  {
    life::Simulation<Space> simulation(context, options.common, life::setup(options, world), life::Model(world.rule),
                                       space);
    if (first) life::print_header(options, world);
    solution = life::solve(
        simulation, options, world, life::reports_field(options, world),
        [&](life::Index generation, std::span<const life::Cell> cells) { step_files.write(generation, cells); });
  }
  step_files.close();
  return first ? life::report(options, world, solution) : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const apps::Parsed parsed = life::parse(argc, argv, options);
  const Kokkos::ScopeGuard kokkos(apps::kokkos_settings());
  return apps::run_program(argc, argv, "life", parsed, options.common.backend, [&](sluice::Context& context) {
    return apps::with_space(context, options.common.stream,
                            [&](const auto& space) { return run_rank(context, options, space); });
  });
}
