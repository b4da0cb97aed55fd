// SPDX-License-Identifier: Apache-2.0
#include "apps/common/program.hpp"
#include "apps/common/usage_error.hpp"
#include "apps/fft/options.hpp"
#include "apps/fft/report.hpp"
#include "apps/fft/solver.hpp"

namespace {

using fft::Options;

fft::Solution solve(fft::Solver& solver, const Options& options) {
  fft::Solution solution;
  solver.set_initial();
  solver.forward();  // the first one opens the channels
  solver.synchronize();
  if (fft::reports_transform(options)) solution.transform = solver.gather();
  solver.set_initial();
  solver.start();
  for (fft::Index step = 0; step < options.steps; ++step) {
    solver.forward();
    solver.backward();
  }
  solution.result = solver.stop();
  if (fft::reports_error(options)) solution.error = solver.error();
  return solution;
}

int run_rank(sluice::Context& context, const Options& options) {
  if (options.common.stream == apps::StreamKind::cuda)
    throw apps::UsageError("--stream cuda: FFTW transforms memory of the host");
  apps::check(options.common);
  apps::check_outputs(context, options.common, {});
  const bool first = context.rank() == 0;
  fft::Solution solution;
  {
    const apps::Pencils pencils(options.mesh(), context.size());
    fft::Solver solver(context, options);
    if (first) fft::print_header(options, pencils);
    solution = solve(solver, options);
  }
  return first ? fft::report(options, solution) : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const apps::Parsed parsed = fft::parse(argc, argv, options);
  return apps::run_program(argc, argv, "fft", parsed, options.common.backend,
                           [&](sluice::Context& context) { return run_rank(context, options); });
}
