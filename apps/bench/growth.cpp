// SPDX-License-Identifier: Apache-2.0
// How the costs of channels grow with their number: `scale --channels`.
#include "apps/bench/benches.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

namespace bench {
namespace {

constexpr sluice::Tag kFirstTag = 1000;
constexpr sluice::Tag kIdleTag = 1;
constexpr int kSteps = 5;       // numbers of channels, each twice the one before
constexpr int kMostRounds = 3;  // of opening and closing all
constexpr int kRoundTrips = 200;
constexpr int kStarts = 20;

/// Rank 0's or 1's channels to the other: as many each way.
class Many {
 public:
  Many(const Workload& workload, int channels)
      : context_(workload.context), bytes_(workload.bytes),
        memory_(context_.allocate(2 * workload.bytes * static_cast<std::size_t>(channels))) {
    for (int i = 0; i < channels; ++i) {
      const std::size_t at = 2 * bytes_ * static_cast<std::size_t>(i);
      out_.push_back(context_.sender(workload.peer, kFirstTag + i, memory_.slice(at, bytes_)));
      in_.push_back(context_.receiver(workload.peer, kFirstTag + i, memory_.slice(at + bytes_, bytes_)));
    }
    for (std::size_t i = 0; i < out_.size(); ++i) {
      out_[i].wait_connected();
      in_[i].wait_connected();
    }
  }

  /// A plan's start, wait and release, each of all channels. From then on they can only be closed.
  double plan_ns() {
    sluice::Plan plan = context_.plan();
    for (auto& sender : out_) plan.add(sender);
    for (auto& receiver : in_) plan.add(receiver);
    plan.commit({});
    const auto step = [&] {
      plan.start({});
      plan.wait({});
      plan.release({});
    };
    step();  // the first has one-time costs
    return timed([&] {
             for (int i = 0; i < kStarts; ++i) step();
           }) /
           kStarts;
  }
  void close() {
    for (std::size_t i = 0; i < out_.size(); ++i) {
      out_[i].close();
      in_[i].close();
    }
  }
  std::string describe() const { return out_.front().describe(); }

 private:
  sluice::Context& context_;
  const std::size_t bytes_;
  sluice::Memory memory_;
  std::vector<sluice::Sender> out_;
  std::vector<sluice::Receiver> in_;
};

enum Cost : std::size_t { kOpen, kMemory, kIdle, kStart, kClose, kCosts };

/// A cost, which is measured for all channels together, but for the round trip of one.
struct CostKind {
  const char* metric;
  const char* unit;
  const char* sample;
  double per_unit;  ///< of the measured value
  bool of_each;     ///< divided by the channels, in both directions
};
constexpr std::array<CostKind, kCosts> kTable = {{
    {"open and connect", "us", "a mean over all channels", 1e3, true},
    {"memory per channel", "bytes", "one reading", 1, true},
    {"one way beside idle channels", "us", "a mean of 200 round trips", 2e3, false},
    {"start, wait, release of a plan", "us", "a mean over 20 starts of all channels", 1e3, true},
    {"close", "us", "a mean over all channels", 1e3, true},
}};

using Values = std::array<std::vector<double>, kCosts>;  // by round

// All ranks wait for each other in between, so that each phase begins with all channels in the same state.
void measure_round(Session& session, const Workload& workload, int channels, Values& values, std::string& description) {
  const auto all = [&] { session.team().collectives.barrier(); };
  const bool takes_part = session.context.rank() <= 1;
  const auto note = [&](Cost cost, double value) { values[cost].push_back(value); };
  auto idle = make_ping_pong(workload).contender;
  std::optional<Many> many;
  all();
  // Rank 0 reads alone, since reading takes memory that ranks of the same process would count.
  const auto in_use = [&] { return session.context.rank() == 0 ? bytes_in_use() : 0; };
  const double before = in_use();
  all();
  note(kOpen, takes_part ? timed([&] { many.emplace(workload, channels); }) : 0);
  all();
  note(kMemory, in_use() - before);
  all();
  note(kIdle, takes_part ? idle->run(kRoundTrips) / kRoundTrips : 0);
  all();
  note(kStart, takes_part ? many->plan_ns() : 0);
  all();
  if (takes_part) description = many->describe();
  note(kClose, takes_part ? timed([&] { many->close(); }) : 0);
  all();
}

void report(Session& session, const Workload& workload, const apps::Description& description,
            const std::vector<int>& numbers, const std::vector<Values>& measured) {
  const int here = session.placement().launch == "threads" ? 2 : 1;  // ranks of this process that open channels
  for (std::size_t cost = 0; cost < kCosts; ++cost) {
    const CostKind& what = kTable[cost];
    std::vector<double> sizes;
    std::vector<double> totals;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      sizes.push_back(numbers[i]);
      totals.push_back(median(measured[i][cost]));
    }
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      Row row = session.row(workload, {what.metric, what.unit, {}}, description);
      const double among = what.of_each ? 2.0 * numbers[i] * (cost == kMemory ? here : 1) : 1;
      Rounds rounds;
      for (const double value : measured[i][cost]) rounds.push_back({value / what.per_unit / among});
      row.summary = summarise(rounds);
      row.rounds = static_cast<int>(rounds.size());
      row.sample = what.sample;
      row.channels = numbers[i];
      row.exponent = growth_exponent(sizes, totals);
      session.report->add(std::move(row));
    }
  }
}

}  // namespace

void run_growth(Session& session) {
  Workload workload = session.pair_workload(session.options.sizes.front(), 1);
  workload.tag = kIdleTag;
  std::vector<int> numbers;
  for (int step = kSteps - 1; step >= 0; --step) numbers.push_back(std::max(session.options.channels >> step, 1));
  std::vector<Values> measured;
  std::string description;
  for (const int channels : numbers) {
    Values& values = measured.emplace_back();
    for (int round = 0; round < std::min(session.options.rounds, kMostRounds); ++round)
      measure_round(session, workload, channels, values, description);
  }
  const apps::Description of_all = session.description_of_all(description);
  session.placement();  // which all ranks find together
  if (session.report) report(session, workload, of_all, numbers, measured);
}

}  // namespace bench
