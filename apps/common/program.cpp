// SPDX-License-Identifier: Apache-2.0
#include "apps/common/program.hpp"

#include "apps/common/host_collectives.hpp"
#include "apps/common/report.hpp"
#include "apps/common/usage_error.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <system_error>

namespace apps {
namespace {

int say(const Parsed& parsed) {
  if (parsed.exit_code == 0)
    print_text(parsed.text);
  else
    fmt::print(stderr, "{}", parsed.text);
  return parsed.exit_code;
}

}  // namespace

bool is_refused_by_any(sluice::Context& context, const std::string& fault) {
  const double mine = fault.empty() ? -context.size() : -context.rank();
  const double first = -make_sluice_collectives(context)->max(mine);
  if (first == context.rank()) fmt::print(stderr, "{}\n", fault);
  return first < context.size();
}

int run_program(int argc, char** argv, const char* name, const Parsed& parsed, const std::string& backend,
                const RankBody& body) {
  // Bad arguments are reported inside the body, where one rank knows that it is the one that reports.
  std::atomic<int> code{parsed.exit_code};
  const auto worst = [&code](int mine) {
    int seen = code.load();
    while (mine > seen && !code.compare_exchange_weak(seen, mine)) {
    }
  };
  const sluice::Options options{
      .timeout = {}, .connect_timeout = {}, .backends = parsed.run ? backend : std::string_view()};
  const int started = sluice::run(
      argc, argv,
      [&](sluice::Context& context) {
        if (!parsed.run) {
          if (context.rank() == 0) say(parsed);
          return;
        }
        if (parsed.trace_fault && is_refused_by_any(context, *parsed.trace_fault)) return worst(2);
        try {
          worst(body(context));
        } catch (const UsageError& error) {
          if (context.rank() == 0) fmt::print(stderr, "{}: {}\n", name, error.what());
          worst(2);
        }
      },
      options);
  try {
    flush_output();
  } catch (const std::system_error& error) {
    fmt::print(stderr, "{}: {}\n", name, error.what());
    worst(1);
  }
  return std::max(started, code.load());
}

}  // namespace apps
