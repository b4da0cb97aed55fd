// SPDX-License-Identifier: Apache-2.0
#include "apps/channel_flow/options.hpp"
#include "apps/channel_flow/report.hpp"
#include "apps/channel_flow/solver.hpp"
#include "apps/common/program.hpp"
#include "apps/common/usage_error.hpp"

namespace {

using channel_flow::Options;

int run_rank(sluice::Context& context, const Options& options) {
  if (options.common.stream == apps::StreamKind::cuda)
    throw apps::UsageError("--stream cuda: FFTW transforms memory of the host");
  apps::check(options.common);
  apps::check_outputs(context, options.common, {});
  const bool first = context.rank() == 0;
  channel_flow::Solution solution;
  {
    const apps::Pencils pencils(options.mesh(), context.size());
    channel_flow::Solver solver(context, options);
    if (first) channel_flow::print_header(options, pencils);
    solver.start();
    for (channel_flow::Index step = 0; step < options.steps; ++step) solver.step();
    solution.result = solver.stop();
    if (options.common.comm != apps::Comm::none) solution.divergence = solver.divergence();
    for (int component = 0; component < channel_flow::kComponents; ++component)
      if (channel_flow::reports_velocity(options))
        solution.velocity[static_cast<std::size_t>(component)] = solver.gather(component);
  }
  return first ? channel_flow::report(options, solution) : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const apps::Parsed parsed = channel_flow::parse(argc, argv, options);
  return apps::run_program(argc, argv, "channel_flow", parsed, options.common.backend,
                           [&](sluice::Context& context) { return run_rank(context, options); });
}
