// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/benches.hpp"
#include "apps/common/usage_error.hpp"

#include <fmt/core.h>

#include <string>
#include <utility>

namespace bench {
namespace {

constexpr int kScaleDepth = 1;  // as in latency

/// Keeps a contender whose pair does not take part, and runs nothing: this rank sleeps in the next collective
/// operation.
class Idle : public Contender {
 public:
  explicit Idle(std::unique_ptr<Contender> made) : made_(std::move(made)) {}
  double run(long /*count*/) override { return 0; }

 private:
  const std::unique_ptr<Contender> made_;
};

// An entry in which the first `pairs` pairs take part.
Entry entry(Session& session, const char* name, std::string what, std::unique_ptr<Contender> made, int pairs) {
  const bool idle = session.context.rank() >= 2 * pairs;
  if (idle) made = std::make_unique<Idle>(std::move(made));
  return {name, std::move(what), std::move(made), pairs};
}

// All ranks make their contenders, because making one may be collective. The first `pairs` pairs run them.
void measure_pairs(Session& session, std::size_t bytes, int pairs) {
  Workload workload = session.pair_workload(bytes, kScaleDepth);
  Ours ours = make_ping_pong(workload);
  std::vector<Entry> entries;
  entries.push_back(entry(session, "sluice", "ours", std::move(ours.contender), pairs));
  if (pairs > 1) {
    workload.tag = 1;
    auto alone = make_ping_pong(workload).contender;
    entries.push_back(entry(session, "one_pair", "ours with one pair, the others asleep", std::move(alone), 1));
  }
  for (const Rival* rival : rivals_for(session.options, &Rival::scale))
    entries.push_back(entry(session, rival->name, what(*rival, session.options), rival->scale(workload), pairs));

  const Metric one_way{"latency", "us", half_in_us};
  const Measurement measured = measure(session.team(), entries, session.budget());
  Row row = make_row(session, workload, one_way, ours.description, measured);
  row.pairs = pairs;
  if (session.report) session.report->add(std::move(row));
}

void measure_sizes(Session& session, int pairs) {
  for (const std::size_t bytes : session.options.sizes) measure_pairs(session, bytes, pairs);
}

}  // namespace

void run_scale(Session& session) {
  const int ranks = session.context.size();
  const int max_pairs = session.options.pairs > 0 ? session.options.pairs : ranks / 2;
  if (ranks % 2 != 0 || 2 * max_pairs > ranks)
    throw apps::UsageError(fmt::format("scale with {} pairs needs an even number of ranks, at least {}, not {}",
                                       max_pairs, 2 * max_pairs, ranks));
  if (session.options.channels > 0) return run_growth(session);
  for (int pairs = 1; pairs < max_pairs; pairs *= 2) measure_sizes(session, pairs);
  measure_sizes(session, max_pairs);
}

}  // namespace bench
