// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/model/predict.hpp"

#include "apps/bench/harness/statistics.hpp"
#include "collectives/footprint.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <utility>

namespace bench {
namespace {

using sluice::collectives::binomial_broadcast_footprint;
using sluice::collectives::dissemination_footprint;
using sluice::collectives::doubling_allreduce_footprint;
using sluice::collectives::Footprint;
using sluice::collectives::level_broadcast_footprint;
using sluice::collectives::Levels;
using sluice::collectives::Model;
using sluice::collectives::puts_footprint;
using sluice::collectives::shared_allreduce_footprint;
using sluice::collectives::shared_broadcast_footprint;
using sluice::collectives::Time;

constexpr double kMemoryOfRank = 1U << 30U;

struct Way {
  std::string algorithm;
  Time time;
  Footprint footprint;
  Time reading = {};  ///< by the program: it counts for the choice, as in the library, and is no time of the collective
};

Way fastest(std::initializer_list<Way> ways) {
  return *std::ranges::min_element(ways, {}, [](const Way& way) { return way.time.total() + way.reading.total(); });
}

/// The part of a time that is the largest, in words.
std::string largest(const Time& time) {
  const std::pair<double, const char*> parts[] = {{time.latency, "latency of rounds"},
                                                  {time.overhead, "injection: work for each message"},
                                                  {time.bandwidth, "bandwidth"},
                                                  {time.memory, "copies and sums"}};
  const auto* const most = std::ranges::max_element(parts, {}, [](const auto& part) { return part.first; });
  return fmt::format("{} ({:.0f} %)", most->second, 100 * most->first / std::max(1e-9, time.total()));
}

Scaled scaled(const char* collective, Way way, const MemoryCosts& costs, double result_bytes) {
  const Footprint& has = way.footprint;
  const double memory = has.ends * costs.end + has.peers * costs.peer + has.bytes + result_bytes;
  std::string limit = largest(way.time);
  // Two rounds are under way, so a round cannot end before its ranks have received the credits of the round before.
  if (has.ends > 0 && way.time.latency > way.time.total() / 2) limit += "; back to back: credits of two rounds";
  if (memory > kMemoryOfRank) limit = fmt::format("memory per rank; {}", limit);
  return {collective, std::move(way.algorithm), way.time, memory, has.ends, std::move(limit)};
}

Way broadcast_of(const Model& model, int ranks, std::size_t bytes) {
  const Levels levels = model.levels_to_broadcast(ranks, bytes);
  return fastest({{"binomial tree", model.binomial_broadcast(ranks, bytes), binomial_broadcast_footprint(ranks, bytes)},
                  {"level tree " + sluice::collectives::text_of(levels), model.level_broadcast(ranks, bytes, levels),
                   level_broadcast_footprint(ranks, bytes, levels)},
                  {"shares", model.shared_broadcast(ranks, bytes), shared_broadcast_footprint(ranks, bytes),
                   model.reading_broadcast_by_shares(bytes)}});
}

Way allreduce_of(const Model& model, int ranks, std::size_t bytes) {
  return fastest(
      {{"recursive doubling", model.doubling_allreduce(ranks, bytes), doubling_allreduce_footprint(ranks, bytes)},
       {"shares", model.shared_allreduce(ranks, bytes), shared_allreduce_footprint(ranks, bytes),
        model.reading_sums_by_shares(ranks, bytes)}});
}

/// The root sends what it has got in the step before: its put reads lines that the peer has written, and writes lines
/// that the peer has read. A receiver that copies a message out does the same. Short messages were copied before.
Time of_changing_roots(const Model& model, Time broadcast, std::size_t bytes) {
  return Model::is_long(bytes) ? broadcast + model.copying(bytes) : broadcast;
}

/// The text behind the last `name` of a line, up to its end.
std::string_view behind(std::string_view line, std::string_view name) {
  const std::size_t at = line.rfind(name);
  return at == std::string_view::npos ? std::string_view() : line.substr(at + name.size());
}

int number_in(std::string_view text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

Levels levels_in(std::string_view text) {
  Levels levels;
  while (!text.empty()) {
    levels.push_back(number_in(text));
    const std::size_t comma = text.find(", ");
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 2);
  }
  return levels;
}

}  // namespace

Ran what_ran(std::string_view description) {
  const std::string_view line = description.substr(0, description.find('\n'));
  const std::size_t begin = line.find("': ");
  if (begin == std::string_view::npos) return {};
  const std::string_view rest = line.substr(begin + 3);
  return {std::string(rest.substr(0, std::min(rest.find(" ("), rest.find(", ways")))),
          number_in(behind(rest, ", ways: ")), levels_in(behind(rest, ", levels: "))};
}

std::optional<Time> predict(const Model& model, Collective collective, const Ran& ran, int ranks, std::size_t bytes) {
  const std::string& algorithm = ran.algorithm;
  const bool sums = collective == Collective::allreduce;
  if (algorithm == "dissemination" && ran.ways > 0) return model.dissemination(ranks, ran.ways);
  if (algorithm == "recursive doubling") return model.doubling_allreduce(ranks, bytes);
  if (algorithm == "shares" && sums) return model.shared_allreduce(ranks, bytes);
  if (algorithm == "shares") return of_changing_roots(model, model.shared_broadcast(ranks, bytes), bytes);
  if (algorithm == "binomial tree") return of_changing_roots(model, model.binomial_broadcast(ranks, bytes), bytes);
  if (algorithm == "level tree")
    return of_changing_roots(model, model.level_broadcast(ranks, bytes, ran.levels), bytes);
  if (algorithm == "pairwise") return model.stepwise(ranks, bytes, 1);
  if (algorithm == "batched") return model.stepwise(ranks, bytes, sluice::collectives::kBatch);
  if (algorithm == "puts") return model.puts(ranks, bytes);
  return std::nullopt;
}

std::vector<Scaled> scale_to(const Model& model, const MemoryCosts& costs, int ranks, std::size_t bytes) {
  const double block = static_cast<double>(bytes);
  const double all = block * ranks;
  const int ways = model.best_ways(ranks);
  const Way puts{"puts", model.puts(ranks, bytes), puts_footprint(ranks, bytes)};
  return {scaled("barrier",
                 {fmt::format("dissemination, ways: {}", ways), model.dissemination(ranks, ways),
                  dissemination_footprint(ranks, ways)},
                 costs, 0),
          scaled("broadcast", broadcast_of(model, ranks, bytes), costs, block),
          scaled("allreduce", allreduce_of(model, ranks, bytes), costs, block), scaled("allgather", puts, costs, all),
          scaled("alltoall", puts, costs, all)};
}

double median_error(const std::vector<double>& ratios) {
  std::vector<double> errors;
  for (const double ratio : ratios) errors.push_back(100 * std::abs(ratio - 1));
  return median(errors);
}

std::string error_text(const std::string& subject, const std::vector<double>& all,
                       const std::vector<double>& as_measured, std::optional<double> goal) {
  std::string text =
      fmt::format("median error of {} predictions of {}: {:.1f} %", all.size(), subject, median_error(all));
  if (as_measured.size() < all.size())
    text += fmt::format("; of {} while a line took as long as for the parameters: {}", as_measured.size(),
                        as_measured.empty() ? "none" : fmt::format("{:.1f} %", median_error(as_measured)));
  if (!goal) return text;
  const bool enough = 2 * as_measured.size() >= all.size() && !as_measured.empty();
  return text + fmt::format(", goal {:.0f} %: {}", *goal,
                            !enough                              ? "inconclusive"
                            : median_error(as_measured) <= *goal ? "holds"
                                                                 : "fails");
}

double step_of(const sluice::collectives::LogGP& costs, int ranks, int ways, double barrier_ns) {
  sluice::collectives::LogGP with = costs;
  const auto barrier_of = [&](double step) {
    with.step = step;
    return Model(with).dissemination(ranks, ways).total();
  };
  const double messages = barrier_of(0);
  const double of_each_ns = barrier_of(1) - messages;
  return of_each_ns > 0 ? std::max(0.0, (barrier_ns - messages) / of_each_ns) : 0;
}

}  // namespace bench
