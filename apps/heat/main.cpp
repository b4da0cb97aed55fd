// SPDX-License-Identifier: Apache-2.0
#include "apps/common/program.hpp"
#include "apps/common/space.hpp"
#include "apps/heat/options.hpp"
#include "apps/heat/report.hpp"
#include "apps/heat/solver.hpp"

#include <span>

namespace {

using heat::Options;

template <std::size_t D, class Space>
int run_rank(sluice::Context& context, const Options& options, const Space& space) {
  apps::check(options.common);
  apps::check_outputs(context, options.common, {options.frames.movie});
  const bool first = context.rank() == 0;
  heat::Solution solution;
  apps::StepFiles<double> step_files = heat::step_files(options, context.size());
  {
    heat::Simulation<D, Space> simulation(context, options.common, heat::setup(options.problem(), options.steps),
                                          heat::Model<D>{options.fourier}, space);
    if (first) heat::print_header(options);
    solution = heat::solve<D>(simulation, options, heat::reports_field(options),
                              [&](heat::Index step, std::span<const double> cells) { step_files.write(step, cells); });
  }
  step_files.close();
  if (solution.accuracy && heat::why_no_order(options, context.size()).empty())
    solution.accuracy->coarse_error = heat::coarse_error<D>(context, options, space);
  return first ? heat::report(options, solution) : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const apps::Parsed parsed = heat::parse(argc, argv, options);
  const Kokkos::ScopeGuard kokkos(apps::kokkos_settings());
  return apps::run_program(argc, argv, "heat", parsed, options.common.backend, [&](sluice::Context& context) {
    return apps::with_space(context, options.common.stream, [&](const auto& space) {
      return options.problem().has_planes() ? run_rank<3>(context, options, space)
                                            : run_rank<2>(context, options, space);
    });
  });
}
