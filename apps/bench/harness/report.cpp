// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/report.hpp"

#include "apps/common/csv.hpp"
#include "apps/common/report.hpp"

#include <sluice/run.hpp>

#include <fmt/chrono.h>
#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>

namespace bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kSchema = 1;

std::string cpu_model() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(':') + 2));
  }
  return "unknown";
}

Json rivals_json(const Row& row) {
  Json rivals = Json::object();
  for (const RivalResult& rival : row.rivals)
    rivals[rival.name] = {
        {"what", rival.what},
        {"p50", rival.p50},
        {"ratio", rival.ratio},
        {"interval", rival.interval ? Json{rival.interval->low, rival.interval->high} : Json(nullptr)},
        {"goal", rival.goal ? Json(*rival.goal) : Json(nullptr)},
        {"verdict", rival.goal ? Json(name(judge(rival.interval, *rival.goal))) : Json(nullptr)}};
  return rivals;
}

Json list_or_null(const std::vector<int>& numbers) { return numbers.empty() ? Json(nullptr) : Json(numbers); }

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json object(const Row& row, const Machine& machine) {
  return {{"schema", kSchema},
          {"bench", row.bench},
          {"backend", row.backend},
          {"stream", row.stream},
          {"memory", row.memory},
          {"touch", row.touch},
          {"fired_by", row.fired_by},
          {"ranks", row.ranks},
          {"pairs", row.pairs ? Json(*row.pairs) : Json(nullptr)},
          {"channels", row.channels ? Json(*row.channels) : Json(nullptr)},
          {"exponent", row.exponent ? Json(*row.exponent) : Json(nullptr)},
          {"launch", row.placement.launch},
          {"cores", list_or_null(row.placement.cores)},
          {"line_ns", row.placement.line_ns ? Json(*row.placement.line_ns) : Json(nullptr)},
          {"bytes", row.bytes},
          {"offset", row.offset ? Json(*row.offset) : Json(nullptr)},
          {"depth", row.depth},
          {"window", row.window},
          {"rails", row.rails ? Json(*row.rails) : Json(nullptr)},
          {"metric", row.metric},
          {"unit", row.unit},
          {"p50", row.summary.p50},
          {"p10", row.summary.p10},
          {"p99", row.summary.p99},
          {"low", row.interval ? Json(row.interval->low) : Json(nullptr)},
          {"high", row.interval ? Json(row.interval->high) : Json(nullptr)},
          {"samples", row.summary.samples},
          {"sample", row.sample},
          {"rounds", row.rounds},
          {"settings", text_or_null(row.settings)},
          {"floor_drift", row.floor_drift ? Json(*row.floor_drift) : Json(nullptr)},
          {"drifted_rounds", list_or_null(row.drifted_rounds)},
          {"version", machine.version},
          {"cpu", machine.cpu},
          {"gpu", text_or_null(machine.gpu.model)},
          {"driver", text_or_null(machine.gpu.driver)},
          {"date", machine.date},
          {"rivals", rivals_json(row)}};
}

// The rivals of all rows, in the order in which they first appear.
std::vector<std::string> rival_names(const std::vector<Row>& rows) {
  std::vector<std::string> names;
  for (const Row& row : rows) {
    for (const RivalResult& rival : row.rivals) {
      if (std::ranges::find(names, rival.name) == names.end()) names.push_back(rival.name);
    }
  }
  return names;
}

std::string ratio_number(double value) { return fmt::format("{:.{}f}", value, value < 10 ? 2 : value < 100 ? 1 : 0); }

// Four significant digits, or fewer below 1.
std::string number(double value) {
  const double size = value < 0 ? -value : value;
  return fmt::format("{:.{}f}", value, size < 10 ? 3 : size < 100 ? 2 : size < 1000 ? 1 : 0);
}

std::string cores_text(const Placement& placement) {
  const std::string cores = !placement.cores.empty()  ? fmt::format("on cores {}", fmt::join(placement.cores, ", "))
                            : placement.too_few_cores ? "not pinned, because there are fewer cores"
                                                      : "not pinned";
  return placement.line_ns ? fmt::format("{}, a line takes {:.0f} ns", cores, *placement.line_ns) : cores;
}

std::string interval_text(const std::optional<Interval>& interval) {
  return interval ? fmt::format("{}-{}", ratio_number(interval->low), ratio_number(interval->high)) : "";
}

std::string goals_text(const Row& row) {
  std::string text;
  for (const RivalResult& rival : row.rivals) {
    if (rival.goal)
      text += fmt::format("  {} {}: {}", rival.name, *rival.goal, name(judge(rival.interval, *rival.goal)));
  }
  return text;
}

std::string counted(int count, const char* what) { return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s"); }

}  // namespace

std::vector<Gpu> gpus_for(StreamChoice stream) {
  std::vector<Gpu> gpus;
  if (!of_gpu(stream)) return gpus;
  const Json info = Json::parse(sluice::info(true));
  for (const Json& gpu : info.at("gpus")) {
    if (gpu.at("vendor") == name(stream)) gpus.push_back({gpu.at("model"), gpu.at("driver")});
  }
  return gpus;
}

Machine this_machine(const Gpu& gpu) {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return {SLUICE_VERSION, cpu_model(), fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now)), gpu};
}

std::string header_text(const Row& row) {
  std::string text =
      fmt::format("# {:>8} {:>26} {:>9} {:>9}", "Size", fmt::format("{} ({})", row.metric, row.unit), "p10", "p99");
  for (const RivalResult& rival : row.rivals)
    text += fmt::format(" {:>18} {:>6} {:>11}", rival.name, "ratio", "interval");
  return text;
}

std::string settings_text(const Row& row) {
  const std::string pairs = row.pairs ? fmt::format(", {} at once", counted(*row.pairs, "pair")) : "";
  const std::string offset = row.offset ? fmt::format(", offset {}", *row.offset) : "";
  const std::string settings = row.settings.empty() ? "" : "; " + row.settings;
  return fmt::format(
      "{}: {}, stream {}, memory {}{}, fired by {}, depth {}, window {}{}; {} by {}{}, {}; a sample: {}{}", row.bench,
      row.backend, row.stream, row.memory, row.touch ? ", payload read" : "", row.fired_by, row.depth, row.window,
      offset, counted(row.ranks, "rank"), row.placement.launch, pairs, cores_text(row.placement), row.sample, settings);
}

std::string ratio_text(const Row& row) {
  return row.rivals.empty() ? ""
                            : "# ratio: the rival's time divided by Sluice's, median over rounds; above 1 Sluice is "
                              "faster; interval: its "
                              "95 % confidence interval\n";
}

std::string row_text(const Row& row) {
  const Summary& ours = row.summary;
  std::string text =
      fmt::format("{:>10} {:>26} {:>9} {:>9}", row.bytes, number(ours.p50), number(ours.p10), number(ours.p99));
  for (const RivalResult& rival : row.rivals)
    text += fmt::format(" {:>18} {:>6} {:>11}", number(rival.p50), number(rival.ratio), interval_text(rival.interval));
  if (row.interval) text += fmt::format("  95 %: {}-{}", number(row.interval->low), number(row.interval->high));
  if (row.channels) text += fmt::format("  {} each way", counted(*row.channels, "channel"));
  if (row.exponent) text += fmt::format("; exponent {:.2f}", *row.exponent);
  text += goals_text(row);
  if (!row.drifted_rounds.empty())
    text += fmt::format("  ! the floor drifted in {} of {} rounds: {}", row.drifted_rounds.size(), row.rounds,
                        fmt::join(row.drifted_rounds, ", "));
  return text;
}

void Report::add(Row row) {
  const std::string header = fmt::format("# {}\n{}{}\n", settings_text(row), ratio_text(row), header_text(row));
  if (header != header_) fmt::print("{}", header);
  header_ = header;
  fmt::print("{}\n", row_text(row));
  apps::flush_output();
  rows_.push_back(std::move(row));
  apps::write_text(json_, to_json());
  apps::write_text(csv_, columns_ == CsvColumns::cup_ecs ? to_cup_ecs() : to_csv());
}

std::vector<std::string> Report::unused(const std::vector<Goal>& goals) const {
  std::vector<std::string> lines;
  for (const Goal& goal : goals) {
    const auto is_for = [&](const Row& row) {
      return std::ranges::any_of(
          row.rivals, [&](const RivalResult& rival) { return goal.is_for(row.metric, rival.name, row.bytes); });
    };
    if (std::ranges::none_of(rows_, is_for))
      lines.push_back("the goal " + goal.text + " is for no rival of these rows");
  }
  return lines;
}

std::string Report::to_json() const {
  Json all = Json::array();
  for (const Row& row : rows_) all.push_back(object(row, machine_));
  return all.dump(2) + "\n";
}

std::string Report::to_cup_ecs() const {
  std::string text = "GPU,Backend,Buffering,Iters,Items,Time\n";
  const std::string gpu = machine_.gpu.model.empty() ? "none" : apps::csv_field(machine_.gpu.model);
  for (const Row& row : rows_) {
    const auto line = [&](const std::string& backend, const std::optional<RoundTrips>& all) {
      if (!all) return;
      text += fmt::format("{},{},{},{},{},{:.6g}\n", gpu, backend, row.depth == 1 ? "sb" : "db", all->count,
                          row.bytes / sizeof(int), all->seconds);
    };
    line("sluice-" + row.backend, row.round_trips);
    for (const RivalResult& rival : row.rivals) line(rival.name, rival.round_trips);
  }
  return text;
}

std::string Report::to_csv() const {
  const auto names = rival_names(rows_);
  std::string text;
  const auto line = [&text](const Json& fixed, bool of_names) {
    for (const auto& [key, value] : fixed.items()) {
      if (key != "rivals") text += (of_names ? key : apps::csv_field(value)) + ",";
    }
  };
  line(object({}, machine_), true);
  for (const auto& name : names) text += fmt::format("{0}_p50,{0}_ratio,{0}_low,{0}_high,", name);
  text.back() = '\n';
  for (const Row& row : rows_) {
    line(object(row, machine_), false);
    for (const auto& name : names) {
      const auto rival = std::ranges::find(row.rivals, name, &RivalResult::name);
      text += rival == row.rivals.end() ? ",," : fmt::format("{},{},", rival->p50, rival->ratio);
      const bool known = rival != row.rivals.end() && rival->interval;
      text += known ? fmt::format("{},{},", rival->interval->low, rival->interval->high) : ",,";
    }
    text.back() = '\n';
  }
  return text;
}

}  // namespace bench
