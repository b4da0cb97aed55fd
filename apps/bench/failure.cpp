// SPDX-License-Identifier: Apache-2.0
// The last rank kills itself at a time that it has told the others. Each of them waits for a message from it, and
// measures how long after the death that wait ends with an error.
#include "apps/bench/benches.hpp"
#include "apps/common/usage_error.hpp"

#include <sluice/sluice.hpp>

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace bench {
namespace {

constexpr sluice::Tag kTag = 0;
constexpr double kNoticeNs = 200e6;  // from the message that names the time of death to the death

// Sends every survivor the time of this rank's death, and dies at that time.
[[noreturn]] void die(Session& session) {
  sluice::Context& context = session.context;
  const int survivors = context.size() - 1;
  const sluice::Memory memory = context.allocate(sizeof(double));
  std::vector<sluice::Sender> outs;
  for (int rank = 0; rank < survivors; ++rank) outs.push_back(context.sender(rank, kTag, memory.all()));
  for (sluice::Sender& out : outs) out.wait_connected();
  const double when = now_ns() + kNoticeNs;
  std::memcpy(memory.data(), &when, sizeof(when));
  for (sluice::Sender& out : outs) {
    out.put({});
    out.drain();
  }
  while (now_ns() < when)
    std::this_thread::sleep_for(std::chrono::nanoseconds(static_cast<long>((when - now_ns()) / 2)));
  ::kill(::getpid(), SIGKILL);
  throw std::logic_error("this rank has killed itself");
}

// Returns the time from the death to the end of the wait by peer_lost, in nanoseconds.
double survive(Session& session, const Workload& workload, std::string& description) {
  sluice::Context& context = session.context;
  const sluice::Memory memory = context.allocate(sizeof(double));
  const std::unique_ptr<Queue> queue = session.drive() == Drive::in_order ? nullptr : make_queue(workload, 1);
  const sluice::Stream stream = queue ? queue->stream() : sluice::Stream();
  sluice::Receiver in = context.receiver(context.size() - 1, kTag, memory.all());
  in.wait(stream);
  context.synchronize(stream);
  double when = 0;
  std::memcpy(&when, memory.data(), sizeof(when));
  description = in.describe();
  in.release(stream);
  try {
    in.wait(stream);
    context.synchronize(stream);
  } catch (const sluice::Error& error) {
    if (error.code() != sluice::Code::peer_lost) throw;
    return now_ns() - when;
  }
  throw std::runtime_error("the wait for a dead rank ended without an error");
}

}  // namespace

void run_failure(Session& session) {
  sluice::Context& context = session.context;
  const std::string launch = session.placement().launch;
  session.close_team();
  if (launch != "sluice-run") throw apps::UsageError("failure kills a process: it needs sluice-run without --threads");
  if (context.rank() == context.size() - 1) die(session);
  std::string description;
  const Workload workload = session.pair_workload(sizeof(double), 1);
  const double mine = survive(session, workload, description);

  std::vector<sluice::Rank> survivors(static_cast<std::size_t>(context.size() - 1));
  std::iota(survivors.begin(), survivors.end(), 0);
  sluice::Context survivors_context = context.sub(survivors);
  std::vector<double> all;
  const std::vector<std::size_t> bytes_of(survivors.size(), sizeof(double));
  const auto collectives = apps::make_sluice_collectives(survivors_context);
  collectives->gather(std::as_bytes(std::span(&mine, 1)), bytes_of, [&](int, std::span<const std::byte> part) {
    std::memcpy(&all.emplace_back(), part.data(), sizeof(double));
  });
  const auto channels = apps::of_all_ranks(apps::read_description(description), *collectives, survivors_context.size());
  if (!session.report) return;
  for (double& ns : all) ns /= 1e6;
  const Metric metric{"failure noticed", "ms", {}};
  Row row = session.row(workload, metric, channels);
  row.summary = summarise({all});
  row.rounds = 1;
  row.sample = "a survivor";
  session.report->add(std::move(row));
}

}  // namespace bench
