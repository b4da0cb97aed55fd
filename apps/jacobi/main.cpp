// SPDX-License-Identifier: Apache-2.0
#include "apps/common/program.hpp"
#include "apps/common/space.hpp"
#include "apps/jacobi/options.hpp"
#include "apps/jacobi/report.hpp"
#include "apps/jacobi/solver.hpp"

#include <fmt/core.h>

namespace {

using jacobi::Options;

void print_norm(const Options& options, apps::Index iteration, double norm) {
  if (!options.csv_line && iteration % 100 < options.norm_every)
    fmt::print("{:5d}, {:.6f}{}", iteration, norm, apps::line_end());
}

void print_header(const Options& options) {
  if (options.csv_line) return;
  fmt::print("Jacobi relaxation: {} iterations on {} x {} mesh", options.iterations, options.ny, options.nx);
  if (options.norm_every > 0) fmt::print(" with norm check every {} iterations", options.norm_every);
  fmt::print("\n");
}

template <class Space>
int run_rank(sluice::Context& context, const Options& options, const Space& space) {
  apps::check(options.common);
  apps::check_outputs(context, options.common, {});
  const bool first = context.rank() == 0;
  jacobi::Solution solution;
  {
    jacobi::Simulation<Space> simulation(context, options.common, jacobi::setup(options), jacobi::Model{}, space);
    if (first) print_header(options);
    solution =
        jacobi::solve(simulation, options, jacobi::reports_field(options), [&](apps::Index iteration, double norm) {
          if (first) print_norm(options, iteration, norm);
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
    return apps::with_space(options.common.stream,
                            [&](const auto& space) { return run_rank(context, options, space); });
  });
}
