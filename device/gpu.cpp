// SPDX-License-Identifier: Apache-2.0
// The host implementation: a stream is a CPU thread.
#include "device/gpu.hpp"

#include <algorithm>

namespace sluice::device {
namespace {

using base::Clock;

/// Sleeps until the word is reached or `watch` has something new to say; the stream's destructor can end it.
void sleep_until(Lane lane, const Wait& wait, Clock::time_point deadline, Watch& watch) {
  if (lane.host != nullptr) lane.host->parked_at(wait.parking);
  const auto ready = [&] {
    return base::reached(*wait.word, wait.at_least) || watch.failed() || (lane.host != nullptr && lane.host->ending());
  };
  base::wait_until(*wait.parking, ready, deadline);
  if (lane.host != nullptr) lane.host->parked_at(nullptr);
}

/// Takes the engine's turns while it waits: nothing else moves what this thread waits for.
bool help_until(const Wait& wait, Watch& watch, Helper& helper, Clock::time_point deadline) {
  for (int turn = 0; Clock::now() < deadline; ++turn) {
    for (int i = 0; i < 16; ++i) {
      helper.help();
      if (base::reached(*wait.word, wait.at_least) || watch.failed()) return true;
    }
  }
  return false;
}

}  // namespace

void check_supported(Stream stream, Rank rank) {
  if (!usable(stream)) throw Error(Code::misuse, rank, -1, 0, 0, "the host stream is empty: it was moved from");
  if (stream.kind() == Stream::Kind::cuda || stream.kind() == Stream::Kind::hip) {
    throw Error(Code::unsupported, rank, -1, 0, 0,
                "this build of Sluice has no GPU support: use a host stream or program order");
  }
}

void wait_slowly(Lane lane, const Wait& wait, Watch& watch, Helper* helper) noexcept {
  const auto began = Clock::now();
  const Timeout limit =
      lane.host != nullptr && !base::seeded("stream_timeout_ignored") ? lane.host->timeout() : kForever;
  constexpr auto kHelping = std::chrono::microseconds(50);
  if (helper != nullptr && help_until(wait, watch, *helper, began + kHelping)) return;
  for (;;) {
    const auto now = Clock::now();
    const auto ask = watch.waited(wait.epoch, now - began, limit);
    const auto deadline = ask > Clock::time_point::max() - now ? Clock::time_point::max() : now + ask;
    sleep_until(lane, wait, deadline, watch);
    // First of all: what is waited for may have come long ago, and each hop of a ping-pong ends here.
    if (base::reached(*wait.word, wait.at_least) || watch.failed()) return;
    if (lane.host != nullptr && lane.host->ending() && !base::seeded("ending_keeps_waits"))
      return watch.fail(Code::aborted, "the stream was destroyed while it waited");
  }
}

}  // namespace sluice::device
