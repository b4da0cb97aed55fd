// SPDX-License-Identifier: Apache-2.0
#include "apps/fft/report.hpp"

#include "apps/fft/reference.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace fft {
namespace {

// The reason why the transform is not compared with its definition; empty if it is.
std::string why_not_compared(const Options& options) {
  return apps::why_not_verified(options.common, products(options.mesh()));
}

// The largest difference of the transform from its definition, as a part of its largest number.
double error_of_transform(const Options& options, const std::vector<Complex>& found) {
  const std::vector<Complex> expected = transform_serially(options.mesh());
  double most = 0;
  double error = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    most = std::max(most, std::abs(expected[i]));
    const double here = std::abs(found[i] - expected[i]);
    error = std::isnan(here) ? INFINITY : std::max(error, here);
  }
  return error / most;
}

// The effect of rounding in so many steps, of cells of about 1.
double tolerance(Index steps) { return 1e-14 * static_cast<double>(steps + 10); }

void verify(const Options& options, Solution& solution) {
  apps::Result& result = solution.result;
  if (!solution.error) {
    apps::print("VERIFICATION: skipped ({})\n", why_not_compared(options));
    return;
  }
  bool passed = *solution.error <= tolerance(options.steps);
  result.max_error = solution.error;
  apps::print("error of the cells after all steps: {:.3g}\n", *solution.error);
  if (const std::string why_not = why_not_compared(options); why_not.empty()) {
    constexpr double kTolerance = 1e-11;
    const double error = error_of_transform(options, solution.transform);
    apps::print("error of the transform, of its largest number: {:.3g}\n", error);
    result.more.emplace_back("transform_error", error);
    passed = passed && error <= kTolerance;
  } else {
    apps::print("the transform itself is not compared with its definition ({})\n", why_not);
  }
  result.verification = passed ? "passed" : "failed";
  apps::print("VERIFICATION: {}\n", passed ? "PASSED" : "FAILED");
}

}  // namespace

void print_header(const Options& options, const apps::Pencils& pencils) {
  apps::print("FFT: {} times there and back, {} x {} x {} cells in {} x {} pencils\n", options.steps, options.nx,
              options.ny, options.nz, pencils.columns(), pencils.rows());
}

bool reports_transform(const Options& options) { return why_not_compared(options).empty(); }

bool reports_error(const Options& options) {
  return options.common.comm != apps::Comm::none && options.common.verify.value_or(true);
}

int report(const Options& options, Solution& solution) {
  apps::print("{}", apps::to_text(solution.result, options.updates()));
  verify(options, solution);
  apps::write_results(solution.result, options.common);
  return solution.result.verification == "failed" ? 1 : 0;
}

}  // namespace fft
