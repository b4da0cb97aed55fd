// SPDX-License-Identifier: Apache-2.0
// Several messages of a plan to one rank that share a put, beside the same messages with a put each.
#include "apps/bench/benches.hpp"

#include <fmt/core.h>

#include <utility>
#include <vector>

namespace bench {

void run_messages(Session& session) {
  const Metric step{fmt::format("step of {} messages", kMessagesOfStep), "us", in_us};
  for (const std::size_t bytes : session.options.sizes) {
    const Workload workload = session.pair_workload(bytes, 1);
    Ours packed = make_messages(workload, true);
    std::vector<Entry> entries;
    entries.push_back({"sluice", "ours, all messages in one put", std::move(packed.contender)});
    entries.push_back({"alone", "ours, each message in a put of its own", make_messages(workload, false).contender});
    const Measurement measured = measure(session.team(), entries, session.budget());
    Row row = make_row(session, workload, step, packed.description, measured);
    if (session.report) session.report->add(std::move(row));
  }
}

}  // namespace bench
