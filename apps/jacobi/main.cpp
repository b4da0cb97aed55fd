// SPDX-License-Identifier: Apache-2.0
#include "apps/common/host_space.hpp"
#include "apps/common/image.hpp"
#include "apps/common/program.hpp"
#include "apps/common/report.hpp"
#include "apps/common/verify.hpp"
#include "apps/jacobi/options.hpp"
#include "apps/jacobi/reference.hpp"
#include "apps/jacobi/solver.hpp"

#include <fmt/core.h>

#include <cstdio>
#include <optional>
#include <string>

namespace {

using jacobi::Options;

double updates(const Options& options, apps::Index steps) {
  const apps::Mesh mesh = options.problem().mesh();
  return static_cast<double>(mesh.nx) * static_cast<double>(mesh.ny) * static_cast<double>(steps);
}

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

// Compares with the serial run; returns that run's time, if there was one.
std::optional<double> verify(const Options& options, jacobi::Solution& solution) {
  std::FILE* const out = options.csv_line ? stderr : stdout;
  const std::string why_not = apps::why_not_verified(options.common, updates(options, options.iterations));
  if (!why_not.empty()) {
    fmt::print(out, "VERIFICATION: skipped ({})\n", why_not);
    return {};
  }
  const auto start = apps::Clock::now();
  const auto expected = jacobi::solve_serially(options.problem(), solution.result.steps);
  const double serial_s = apps::seconds_since(start);
  const auto comparison = apps::compare<double>(solution.unknowns, expected);
  solution.result.verification = comparison.passed() ? "passed" : "failed";
  solution.result.max_error = comparison.max_error;
  fmt::print(out, "{}\n", apps::verification_line(comparison, options.problem().mesh().nx, expected.size()));
  return serial_s;
}

void print_csv_line(const Options& options, const apps::Result& result, std::optional<double> serial_s) {
  fmt::print("{}, {}, {}, {}, {}, {}, 1, {:f}, {}\n", result.comm, result.nx, result.ny, options.iterations,
             options.norm_every, result.ranks, result.solve_s, serial_s ? fmt::format("{:f}", *serial_s) : "");
}

// Rank 0's last duties. Returns the exit code.
int report(const Options& options, jacobi::Solution& solution) {
  apps::Result& result = solution.result;
  if (!options.csv_line)
    fmt::print("{} ranks, {} steps, comm {}, backend {}, stream {}\n{}", result.ranks, result.steps, result.comm,
               result.backend, result.stream, apps::to_text(result, updates(options, result.steps)));
  const auto serial_s = verify(options, solution);
  if (options.csv_line) print_csv_line(options, result, serial_s);
  apps::write_results(result, options.common);
  const apps::Mesh mesh = options.problem().mesh();
  if (!options.common.image.empty())
    apps::write_png(options.common.image,
                    apps::draw<double>(solution.unknowns, mesh.nx, mesh.ny, -1, 1, apps::kDiverging));
  return result.verification == "failed" ? 1 : 0;
}

template <class Space>
int run_rank(sluice::Context& context, const Options& options, const Space& space) {
  apps::check(options.common);
  apps::check_outputs(options.common);
  const bool first = context.rank() == 0;
  const bool verified = apps::why_not_verified(options.common, updates(options, options.iterations)).empty();
  const bool want_field = verified || !options.common.image.empty();
  jacobi::Solution solution;
  {
    jacobi::Simulation<Space> simulation(context, options.common, jacobi::setup(options), jacobi::Model{}, space);
    if (first) print_header(options);
    solution = jacobi::solve(simulation, options, want_field, [&](apps::Index iteration, double norm) {
      if (first) print_norm(options, iteration, norm);
    });
  }
  return first ? report(options, solution) : 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const apps::Parsed parsed = jacobi::parse(argc, argv, options);
  const Kokkos::ScopeGuard kokkos(apps::kokkos_settings());
  return apps::run_program(argc, argv, "jacobi", parsed, options.common.backend, [&](sluice::Context& context) {
    return apps::with_host_space([&](const auto& space) { return run_rank(context, options, space); });
  });
}
