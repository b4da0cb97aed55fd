// SPDX-License-Identifier: Apache-2.0
#include "apps/cg/options.hpp"
#include "apps/cg/report.hpp"
#include "apps/cg/solver.hpp"
#include "apps/common/program.hpp"
#include "apps/common/space.hpp"
#include "apps/common/usage_error.hpp"

namespace {

using cg::Options;

template <std::size_t D, class Space>
int run_rank(sluice::Context& context, const Options& options, const Space& space) {
  apps::check(options.common);
  apps::check_outputs(context, options.common, {});
  const bool first = context.rank() == 0;
  cg::Solution solution;
  {
    cg::Simulation<D, Space> simulation(context, options.common, cg::setup(options), cg::Laplacian<D>{}, space);
    if (first) cg::print_header(options);
    solution = cg::solve<D>(simulation, options, cg::reports_field(options), [&](cg::Index iteration, double residual) {
      if (first) cg::print_residual(options, iteration, residual);
    });
  }
  return first ? cg::report(options, solution) : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const apps::Parsed parsed = cg::parse(argc, argv, options);
  const Kokkos::ScopeGuard kokkos(apps::kokkos_settings());
  return apps::run_program(argc, argv, "cg", parsed, options.common.backend, [&](sluice::Context& context) {
    if (options.common.stream == apps::StreamKind::cuda)
      throw apps::UsageError("--stream cuda: the vectors are in the memory of the host");
    apps::check_launches(context, options.common.stream);
    return apps::with_host_space([&](const auto& space) {
      return options.problem().has_planes() ? run_rank<3>(context, options, space)
                                            : run_rank<2>(context, options, space);
    });
  });
}
