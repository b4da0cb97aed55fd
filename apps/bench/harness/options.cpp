// SPDX-License-Identifier: Apache-2.0
#include "apps/bench/harness/options.hpp"

#include "apps/common/choice.hpp"
#include "apps/common/sizes.hpp"
#include "apps/common/usage_error.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace bench {
namespace {

const apps::Choices<StreamChoice> kStreams = {{"program", StreamChoice::inline_},
                                              {"host", StreamChoice::host},
                                              {"cuda", StreamChoice::cuda},
                                              {"hip", StreamChoice::hip}};
const apps::Choices<MemoryChoice> kMemories = {{"allocated", MemoryChoice::allocated}, {"user", MemoryChoice::user}};
const apps::Choices<CsvColumns> kColumns = {{"sluice", CsvColumns::sluice}, {"cup-ecs", CsvColumns::cup_ecs}};

// MPI counts the bytes of a message in an int, and a machine has memory for a few such messages only.
constexpr std::size_t kMaxBytes = std::size_t{1} << 30;

constexpr int kMaxCount = 65536;

std::vector<std::size_t> parse_range(std::string_view text) {
  const auto colon = text.find(':');
  const std::size_t min = apps::parse_size(text.substr(0, colon));
  const std::size_t max = colon == std::string_view::npos ? min : apps::parse_size(text.substr(colon + 1));
  if (max > kMaxBytes) throw apps::UsageError("sizes end at 1g, not at " + apps::size_text(max));
  std::vector<std::size_t> sizes;
  if (min == 0) sizes.push_back(0);
  if (min <= max) {
    for (std::size_t size = std::bit_ceil(min); size <= max; size *= 2) sizes.push_back(size);
  }
  if (sizes.empty()) throw apps::UsageError("no power of two is in '" + std::string(text) + "'");
  return sizes;
}

std::vector<std::size_t> parse_offsets(const std::string& list) {
  constexpr std::size_t kPageBytes = 4096;
  std::vector<std::size_t> offsets;
  for (const std::string& part : split(list)) {
    offsets.push_back(apps::parse_size(part));
    if (offsets.back() >= kPageBytes) throw apps::UsageError("offsets are below 4096, not " + part);
  }
  if (offsets.empty()) throw apps::UsageError("no offset is in '" + list + "'");
  return offsets;
}

// Adds an option whose text `parse_text` reads. A UsageError of `parse_text` is reported as a wrong argument of the
// option.
template <class ParseText>
void add_text(CLI::App& app, const std::string& flag, const std::string& help, const std::string& text,
              ParseText parse_text) {
  const auto assign = [flag, parse_text](const std::string& value) {
    try {
      parse_text(value);
    } catch (const apps::UsageError& error) {
      throw CLI::ValidationError(flag, error.what());
    }
  };
  app.add_option_function<std::string>(flag, assign, help)->option_text(text);
}

void add_what(CLI::App& app, Options& options) {
  const auto stream = [&options](StreamChoice chosen) { options.stream = chosen; };
  apps::Choices<StreamChoice> streams = kStreams;
  streams.emplace("inline", StreamChoice::inline_);  // its older name
  app.add_option_function<StreamChoice>(
         "--stream", stream, "program (program order, in the calling thread), host (a host stream), or a GPU's")
      ->transform(CLI::CheckedTransformer(streams).description(""))
      ->option_text("program|host|cuda|hip");
  app.add_option("--memory", options.memory, "what the library allocated, or malloc'ed memory")
      ->transform(CLI::CheckedTransformer(kMemories).description(""))
      ->option_text("allocated|user");
  apps::add_backend_option(app, options.backend);
  app.add_flag("--touch", options.touch,
               "the target reads the payload; in round trips and collectives the source is written, too");
  const auto against = [&options](const std::string& list) { options.against = split(list); };
  add_text(app, "--against", "rivals, separated by commas; all: those that can run here; none", "NAME,...", against);
  const auto goals = [&options](const std::string& list) { options.goals = parse_goals(list); };
  add_text(app, "--goal", "what the ratio to a rival should be at least: the row says whether it is",
           "[METRIC/]NAME=RATIO[@MIN:MAX],...", goals);
}

void add_how_much(CLI::App& app, Options& options) {
  const CLI::Validator count = apps::whole_number(1, kMaxCount);
  const auto sizes = [&options](const std::string& range) { options.sizes = parse_sizes(range); };
  add_text(app, "--sizes", "bytes of a message: powers of two, with k and m; or several ranges", "MIN:MAX,...", sizes);
  app.add_option("--depth", options.depth, "slots of a channel")->transform(count);
  app.add_option("--window", options.window, "messages before an answer")->transform(count);
  app.add_option("--rails", options.rails, "rails to stripe over, as SLUICE_RAILS; default: chosen by size")
      ->transform(apps::whole_number(1, 8));
  app.add_option("--iters", options.iterations, "units of a round, as whole samples; default: about 10 ms of them")
      ->transform(apps::whole_number(1, 1 << 30));
  app.add_option("--rounds", options.rounds, "how often each contender has its turn")
      ->transform(count)
      ->capture_default_str();
  app.add_option("--neighbours", options.neighbours, "of a halo")->check(CLI::IsMember({4, 26}))->capture_default_str();
  app.add_option("--pairs", options.pairs, "pairs of ranks at once, for scale; default: half of the ranks")
      ->transform(count);
  app.add_option("--channels", options.channels, "for scale: costs of up to so many channels each way, not of pairs")
      ->transform(count);
  app.add_option("--busy", options.busy, "threads that compute, for progress; default: as many as cores")
      ->transform(count);
  const auto offsets = [&options](const std::string& list) { options.offsets = parse_offsets(list); };
  add_text(app, "--offsets", "of the target from the source, modulo a page of 4 KiB, for copy", "BYTES,...", offsets);
  app.add_flag("--batch", options.batch, "for rate: a second row, by the verbs of several epochs");
  const auto pin = [&options](std::int64_t times) { options.pin = times > 0; };
  app.add_flag_function("--pin,!--no-pin", pin,
                        "pin each rank to a core of its own, or do not; default: pin, except on GPUs and where ranks "
                        "need several cores");
}

}  // namespace

const char* name(StreamChoice stream) { return apps::name_in(kStreams, stream); }
const char* name(MemoryChoice memory) { return apps::name_in(kMemories, memory); }

apps::Parsed parse(int argc, const char* const* argv, const BenchNames& benches, Options& options) {
  std::vector<std::string> names;
  for (const auto& row : benches) names.push_back(row.first);
  CLI::App app(
      "Measures channels against raw mapped memory and MPI, in the same run. Start it by sluice-run or mpiexec.",
      "sluice-bench");
  app.add_option("NAME", options.bench, "what to measure")->required()->check(CLI::IsMember(names).description(""));
  const std::size_t width = std::ranges::max(names, {}, &std::string::size).size();
  std::string list;
  for (const auto& [bench, what] : benches) list += fmt::format("  {:{}}  {}\n", bench, width, what);
  app.footer(
      "NAME, and what it measures:\n" + list +
      "\nratio, beside the time of a rival: the rival's time divided by Sluice's, the median over the rounds. Above 1\n"
      "Sluice is faster. Behind it, the 95 % confidence interval of that median. A goal holds if the interval's lower\n"
      "end reaches it, and fails if its upper end does not.");
  add_what(app, options);
  add_how_much(app, options);
  app.add_option("--write-model", options.model, "model: write the parameters to this file, for SLUICE_MODEL")
      ->option_text("FILE");
  app.add_option("--json", options.json, "write the rows to this file")->option_text("FILE");
  app.add_option("--csv", options.csv, "write the rows to this file")->option_text("FILE");
  app.add_option("--columns", options.columns, "of the CSV file: our own, or those of CUP-ECS's ping-pongs")
      ->transform(CLI::CheckedTransformer(kColumns).description(""))
      ->option_text("sluice|cup-ecs");
  apps::add_trace_option(app, options.trace);
  return apps::parse(app, argc, argv);
}

std::vector<std::size_t> parse_sizes(std::string_view text) {
  std::vector<std::size_t> sizes;
  for (;;) {
    const auto comma = text.find(',');
    std::ranges::copy(parse_range(text.substr(0, comma)), std::back_inserter(sizes));
    if (comma == std::string_view::npos) return sizes;
    text.remove_prefix(comma + 1);
  }
}

std::string_view ofi_provider(const Options& options) {
  constexpr std::string_view kPrefix = "ofi:";
  const std::string_view backend = options.backend;
  if (!backend.starts_with(kPrefix) || backend.find(',') != std::string_view::npos) return {};
  return backend.substr(kPrefix.size());
}

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> parts;
  while (!list.empty()) {
    const auto part = list.substr(0, list.find(','));
    if (!part.empty()) parts.emplace_back(part);
    list.remove_prefix(std::min(part.size() + 1, list.size()));
  }
  return parts;
}

}  // namespace bench
