// SPDX-License-Identifier: Apache-2.0
// Ranges of a segmented channel, beside messages of a channel with as many slots.
#include "apps/bench/benches.hpp"

#include <utility>
#include <vector>

namespace bench {
namespace {

constexpr int kWindowOfSegments = sluice::SegmentSender::kMostUnderWay;

}  // namespace

void run_segments(Session& session) {
  const int window = session.options.window > 0 ? session.options.window : kWindowOfSegments;
  const Metric metric{"segment rate", "million/s", [window](double window_ns) { return window / window_ns * 1e3; }};
  for (const std::size_t bytes : session.options.sizes) {
    Workload workload = session.pair_workload(bytes, window);
    workload.window = window;
    Workload of_channel = workload;
    of_channel.tag = 2;  // behind the tags of the segments' answers
    std::vector<Entry> channel;
    channel.push_back({"channel", "ours, a channel with as many slots", make_flood(of_channel).contender});
    measure_row(session, workload, &Rival::rate, make_segment_flood(workload), metric, session.budget(),
                std::move(channel));
  }
}

}  // namespace bench
