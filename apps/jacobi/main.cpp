// SPDX-License-Identifier: Apache-2.0
#include "apps/common/program.hpp"
#include "apps/common/space.hpp"
#include "apps/jacobi/options.hpp"
#include "apps/jacobi/report.hpp"
#include "apps/jacobi/solver.hpp"

namespace {

using jacobi::Options;

template <class Model, class Space>
int run_rank(sluice::Context& context, const Options& options, const Space& space) {
  apps::check(options.common);
  apps::check_outputs(context, options.common, {});
  const bool first = context.rank() == 0;
  jacobi::Solution solution;
  {
    jacobi::Simulation<Model, Space> simulation(context, options.common, jacobi::setup(options), Model{}, space);
    if (first) jacobi::print_header(options);
    solution =
        jacobi::solve(simulation, options, jacobi::reports_field(options), [&](apps::Index iteration, double norm) {
          if (first) jacobi::print_norm(options, iteration, norm);
        });
  }
  return first ? jacobi::report(options, solution) : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const apps::Parsed parsed = jacobi::parse(argc, argv, options);
  const Kokkos::ScopeGuard kokkos(apps::kokkos_settings());
  return apps::run_program(argc, argv, "jacobi", parsed, options.common.backend, [&](sluice::Context& context) {
    return apps::with_space(context, options.common.stream, [&](const auto& space) {
      return options.problem().has_planes() ? run_rank<jacobi::Volume>(context, options, space)
                                            : run_rank<jacobi::Plane>(context, options, space);
    });
  });
}
