// SPDX-License-Identifier: Apache-2.0
// The host implementation: a stream is a CPU thread.
#include "device/gpu.hpp"

#include <optional>

#include "base/limit.hpp"
#include "device/traced.hpp"

namespace sluice::device {
namespace {

using base::Clock;

bool is_over(const Wait& wait, Watch& watch) noexcept {
  if (base::reached(*wait.word, wait.at_least) || watch.failed()) return true;
  watch.assist(wait.epoch);
  return false;
}

/// Waits until the word is reached or `watch` has failed; the stream's destructor can end the wait. Tells the
/// destructor where the thread sleeps only before it sleeps, since the lock would prolong short waits, but before the
/// last look at `ending`.
void sleep_until(Lane lane, const Wait& wait, Clock::time_point deadline, Watch& watch) {
  auto ready = [&] { return is_over(wait, watch) || (lane.host != nullptr && lane.host->ending()); };
  if (lane.host == nullptr) return static_cast<void>(base::wait_until(*wait.parking, ready, deadline));
  watch.sleeps(lane.host);
  if (!base::spin_then_yield(ready, deadline)) {
    lane.host->parked_at(wait.parking);
    base::park_until(*wait.parking, ready, deadline);
    lane.host->parked_at(nullptr);
  }
  watch.awakes();
}

}  // namespace

void check_supported(Stream stream, Rank rank) {
  if (!usable(stream)) {
    const char* const why = stream.handle() == nullptr ? "it was moved from" : base::kForked;
    throw Error(Code::misuse, rank, -1, 0, 0, std::string("the host stream: ") + why);
  }
  if (!of_gpu(stream)) return;
  const Driver* const vendor = driver(stream.kind());
  const std::string name = stream.kind() == Stream::Kind::cuda ? "CUDA" : "HIP";
  if (vendor != nullptr && vendor->why_not().empty()) return;
  const std::string why = vendor != nullptr ? name + " streams: " + vendor->why_not()
                                            : "this build of Sluice has no " + name +
                                                  ", or SLUICE_GPUS leaves it out: use a host stream or program order";
  throw Error(Code::unsupported, rank, -1, 0, 0, why);
}

void wait_on_gpu(Lane lane, const Wait& wait, const Watch& watch) {
  const auto work = [lane, &word = *wait.word, at_least = wait.at_least] { lane.gpu->wait(word, at_least); };
  if (wait.what == nullptr || !base::trace::on()) [[likely]]
    return work();
  trace_slice(lane, wait.what, watch.traced, wait.epoch, 0, base::trace::Arrow::none, work);
}

void wait_slowly(Lane lane, const Wait& wait, Watch& watch, Helper* helper) noexcept {
  std::optional<base::trace::Span> slice;
  if (wait.what != nullptr) slice.emplace(wait.what, watch.traced, wait.epoch);
  // Reading the clock also pauses the polling: without that, 8 bytes between near cores took 0.082 us, not 0.061.
  base::Lasted lasted;
  const Timeout limit = lane.host != nullptr ? lane.host->timeout() : kForever;
  const auto over = [&] { return is_over(wait, watch); };
  const auto ends = [&] { return over() || (lane.host != nullptr && lane.host->ending()); };
  base::WaitNote note(lasted.last_look(), lane.host == nullptr ? "program order" : lane.host->name().c_str());
  if (helper != nullptr) {
    helper->help();  // a limit of 0 misses nothing that has arrived
    if (over()) return;
  }
  for (bool helps = helper != nullptr;; helps = false) {
    const auto ask = watch.waited(wait, lasted.so_far(), limit, note);
    const auto deadline = base::deadline_after(ask);
    if (helps) {
      static_cast<void>(help_until(*helper, ends, deadline));
    } else {
      sleep_until(lane, wait, deadline, watch);
    }
    // First of all: the word may have been raised long ago, and each hop of a ping-pong ends here.
    if (over()) return;
    // A message may have arrived while the process stood still.
    if (helper != nullptr && Clock::now() >= deadline) helper->look();
    if (over()) return;
    lasted.look(ask);
    if (lane.host != nullptr && lane.host->ending())
      return watch.fail(Code::aborted, "the stream was destroyed while it waited");
  }
}

}  // namespace sluice::device
