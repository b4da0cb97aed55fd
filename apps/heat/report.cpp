// SPDX-License-Identifier: Apache-2.0
#include "apps/heat/report.hpp"

#include "apps/common/decomposition.hpp"
#include "apps/common/field_file.hpp"
#include "apps/common/image.hpp"
#include "apps/common/usage_error.hpp"
#include "apps/common/verify.hpp"
#include "apps/heat/reference.hpp"

#include <fmt/core.h>

#include <span>

namespace heat {
namespace {

// The greatest value at the start; no later value is greater.
double hottest(const Options& options) { return options.start == Start::sine ? 2 : 1; }

std::string why_not_verified(const Options& options) {
  return apps::why_not_verified(options.common, options.updates());
}

bool balance_is_kept(const Options& options, Solution& solution) {
  if (!solution.balance) {
    apps::print("CONSERVATION: skipped (without communication heat is lost)\n");
    return true;
  }
  const Balance& balance = *solution.balance;
  const bool kept = balance.kept(options.steps);
  apps::print("heat: {:.17g} before, {:.17g} after: a change of {:.2g} of it, by rounding at most {:.2g}\n",
              balance.before, balance.after, balance.change(), rounding(options.steps));
  apps::print("CONSERVATION: {}\n", kept ? "PASSED" : "FAILED");
  solution.result.more.emplace_back("heat_change", balance.change());
  return kept;
}

void print_error(const Options& options, Solution& solution) {
  if (!solution.accuracy) return;
  const Accuracy& accuracy = *solution.accuracy;
  apps::print("error against the exact solution: {:.4g}", accuracy.error);
  solution.result.more.emplace_back("error", accuracy.error);
  if (accuracy.coarse_error) apps::print("; in cells twice as wide {:.4g}", *accuracy.coarse_error);
  if (const auto order = accuracy.order(options.steps)) {
    apps::print(": order {:.2f}\n", *order);
    solution.result.more.emplace_back("order", *order);
  } else {
    apps::print("; its order is not known ({})\n", accuracy.coarse_error
                                                       ? "errors as small as these are rounding"
                                                       : why_no_order(options, solution.result.ranks));
  }
}

// On a GPU a product and a sum may be rounded once. The tolerance is the effect of that in so many steps.
double tolerance(const Options& options) {
  return options.common.stream == apps::StreamKind::cuda ? 2 * rounding(options.steps) : 0;
}

// Does not write a file whose name is empty.
void write_files(const Options& options, const std::string& image, const std::string& field, int ranks,
                 std::span<const double> cells) {
  const apps::Mesh mesh = options.problem().mesh();
  apps::write_picture(image, cells, mesh, 0, hottest(options), apps::kHot);
  apps::write_field(field, cells, {mesh, ranks});
}

}  // namespace

bool reports_field(const Options& options) { return apps::needs_field(options.common, options.updates()); }

bool reports_error(const Options& options) { return options.start == Start::sine && why_not_verified(options).empty(); }

std::string why_no_order(const Options& options, int ranks) {
  const Problem problem = options.problem();
  for (const Index side : {problem.nx, problem.ny, problem.has_planes() ? problem.nz : 6})
    if (side % 2 != 0 || side < 6) return "it takes even sides of 6 cells or more";
  if (options.steps % 4 != 0 || options.steps == 0) return "it takes a multiple of four steps";
  try {
    static_cast<void>(apps::Decomposition(problem.coarser().mesh(), ranks));
  } catch (const apps::UsageError& error) {
    return error.what();
  }
  return "";
}

void print_header(const Options& options) {
  const std::string planes = options.problem().has_planes() ? fmt::format(" x {}", options.nz) : "";
  apps::print("Heat: {} steps of {:g} in a box of {} x {}{} cells\n", options.steps, options.fourier, options.nx,
              options.ny, planes);
}

apps::StepFiles<double> step_files(const Options& options, int ranks) {
  const auto write = [&options, ranks](Index step, std::span<const double> cells) {
    write_files(options, apps::numbered(options.common.image, step), apps::numbered(options.common.field, step), ranks,
                cells);
  };
  return {options.frames, options.steps, options.problem().mesh(), 0, hottest(options), apps::kHot, write};
}

int report(const Options& options, Solution& solution) {
  apps::Result& result = solution.result;
  apps::print("{}", apps::to_text(result, options.updates()));
  const bool kept = balance_is_kept(options, solution);
  print_error(options, solution);
  const apps::Mesh mesh = options.problem().mesh();
  apps::verify<double>(
      result, why_not_verified(options), solution.cells, mesh,
      [&] { return solve_serially(options.problem(), options.steps); }, tolerance(options));
  if (!kept) result.verification = "failed";
  apps::write_results(result, options.common);
  write_files(options, options.common.image, options.common.field, result.ranks, solution.cells);
  return result.verification == "failed" ? 1 : 0;
}

}  // namespace heat
