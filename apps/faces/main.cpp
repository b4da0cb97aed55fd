// SPDX-License-Identifier: Apache-2.0
#include "apps/common/program.hpp"
#include "apps/common/space.hpp"
#include "apps/faces/options.hpp"
#include "apps/faces/report.hpp"
#include "apps/faces/solver.hpp"

namespace {

using faces::Options;

template <class Space>
int run_rank(sluice::Context& context, const Options& options, const Space& space) {
  apps::check(options.common);
  apps::check_outputs(context, options.common, {});
  const faces::Problem problem = faces::make_problem(context.size(), options.nodes);
  const bool first = context.rank() == 0;
  faces::Solution solution;
  {
    faces::Simulation<Space> simulation(context, options.common, faces::setup(problem, options.steps), {}, space);
    if (first) faces::print_header(options, problem);
    solution = faces::solve(simulation, problem, options.steps, faces::reports_field(options, context.size()));
  }
  return first ? faces::report(options, problem, solution) : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const apps::Parsed parsed = faces::parse(argc, argv, options);
  const Kokkos::ScopeGuard kokkos(apps::kokkos_settings());
  return apps::run_program(argc, argv, "faces", parsed, options.common.backend, [&](sluice::Context& context) {
    return apps::with_space(context, options.common.stream,
                            [&](const auto& space) { return run_rank(context, options, space); });
  });
}
