// SPDX-License-Identifier: Apache-2.0
// sluice-bench: the cost of channels and of their rivals.
#include "apps/bench/benches.hpp"
#include "apps/bench/ours/packing.hpp"
#include "apps/common/program.hpp"
#include "apps/common/report.hpp"

#include <fmt/core.h>

#include <cstdlib>
#include <string>
#include <string_view>

namespace {

int run_rank(sluice::Context& context, const bench::Options& command_line, double resident_at_start) {
  bench::Options options = command_line;
  const bench::Bench& chosen = bench::choose(options, context.size());
  if (context.rank() == 0 && chosen.rivals != nullptr) {
    for (const auto& line : bench::left_out(options, chosen.rivals)) apps::print("# {}\n", line);
  }
  bench::Session session(context, options, resident_at_start);
  chosen.run(session);
  const std::string changed = session.how_line_changed();
  if (session.report) {
    if (!changed.empty()) apps::print("# {}\n", changed);
    for (const auto& line : session.report->unused(options.goals)) apps::print("# {}\n", line);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 5 && std::string_view(argv[1]) == bench::kServeCopies) return bench::serve_copies({argv + 2, argv + 5});
  const double resident_at_start = bench::resident_bytes();
  bench::BenchNames names;
  for (const bench::Bench& row : bench::benches()) names.emplace_back(row.name, row.what);
  bench::Options options;
  const apps::Parsed parsed = bench::parse(argc, argv, names, options);
  // A context reads the variable when it is made, later.
  if (options.rails > 0) ::setenv("SLUICE_RAILS", std::to_string(options.rails).c_str(), 1);
  const auto kokkos = bench::start_kokkos(options.bench);
  return apps::run_program(argc, argv, "sluice-bench", parsed, options.backend,
                           [&](sluice::Context& context) { return run_rank(context, options, resident_at_start); });
}
