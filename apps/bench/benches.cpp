// SPDX-License-Identifier: Apache-2.0
// The table of benches.
#include "apps/bench/benches.hpp"

#include "apps/bench/harness/report.hpp"
#include "apps/bench/ours/packing.hpp"
#include "apps/bench/ours/stream_mpi.hpp"
#include "apps/bench/rivals/mpi.hpp"
#include "apps/common/report.hpp"
#include "apps/common/usage_error.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>

namespace bench {
namespace {

constexpr int kAnyNumber = std::numeric_limits<int>::max();
constexpr auto kInline = StreamChoice::inline_;
constexpr auto kHost = StreamChoice::host;
constexpr auto kCuda = StreamChoice::cuda;

void check_ranks(const Bench& bench, int ranks) {
  const bool exact = bench.min_ranks == bench.max_ranks;
  if (ranks < bench.min_ranks || ranks > bench.max_ranks)
    throw apps::UsageError(fmt::format("{} needs {} {} rank{}, not {}", bench.name, exact ? "exactly" : "at least",
                                       bench.min_ranks, bench.min_ranks == 1 ? "" : "s", ranks));
}

void check_stream(const Bench& bench, StreamChoice stream) {
  if (stream == StreamChoice::inline_ && (bench.run == run_stream || bench.run == run_pipeline))
    throw apps::UsageError(fmt::format(
        "{} measures a stream of the host or a GPU: --stream program is for the other benches", bench.name));
  if (stream == StreamChoice::host && bench.run == run_segments)
    throw apps::UsageError("segments is not measured with --stream host");
  if (of_gpu(bench.stream) && !of_gpu(stream))
    throw apps::UsageError(fmt::format("{} is measured on a GPU's stream: --stream cuda or hip", bench.name));
}

// All operations of a window must fit into the GPU's stream while its gate is closed.
constexpr int kMaxWindowOnGpus = 64;

void check_gpu(const Bench& bench, const Options& options) {
  if (!of_gpu(options.stream)) return;
  const auto refuse_if = [&](bool asked, const std::string& why) {
    if (asked) throw apps::UsageError(fmt::format("--stream {}: {}", name(*options.stream), why));
  };
  refuse_if(!bench.on_gpus, fmt::format("{} is not measured on a GPU's stream", bench.name));
  refuse_if(options.memory == MemoryChoice::user, "what is measured is memory of the GPU, not --memory user");
  refuse_if(options.touch, "nobody reads the payload there: --touch is for the host's memory");
  refuse_if(!options.trace.empty() && (bench.run == run_bandwidth || bench.run == run_rate),
            "it holds too few functions of the host for the timeline of a window of messages");
  refuse_if(options.window > kMaxWindowOnGpus,
            fmt::format("a --window has at most {} messages there", kMaxWindowOnGpus));
  refuse_if(gpus_for(*options.stream).empty(), "there is no GPU here that this build can use");
}

// The costs of many channels are measured between ranks 0 and 1, without rivals.
void check_channels(const Bench& bench, const Options& options) {
  if (options.channels == 0) return;
  const auto refuse_if = [](bool asked, const std::string& why) {
    if (asked) throw apps::UsageError("--channels " + why);
  };
  refuse_if(bench.run != run_scale, "is for scale");
  refuse_if(options.pairs > 0, "and --pairs exclude each other");
  refuse_if(options.stream == StreamChoice::host, "is not measured with --stream host");
  refuse_if(options.against != std::vector<std::string>{"none"}, "has no rivals");
}

void check_batch(const Bench& bench, const Options& options) {
  if (options.batch && bench.run != run_rate) throw apps::UsageError("--batch is for rate");
  if (options.batch && options.depth == 1) throw apps::UsageError("--batch needs slots for several messages: --depth");
}

// Benches without rivals measure channels of one slot in allocated memory, and do not read the payload.
void check_settings(const Bench& bench, const Options& options) {
  if (bench.rivals != nullptr) return;
  const auto refuse_if = [&](bool asked, const char* what) {
    if (asked) throw apps::UsageError(fmt::format("{} is not measured {}", bench.name, what));
  };
  refuse_if(options.memory == MemoryChoice::user, "with --memory user");
  refuse_if(options.depth > 1, "with a --depth above 1");
  refuse_if(options.touch, "with --touch");
  refuse_if(bench.run != run_failure && options.stream == StreamChoice::host, "with --stream host");
  refuse_if(bench.run == run_progress && options.pin == true, "with --pin");
}

// In `packing` the calling thread of both ends packs into memory that the bench chooses, and reads all of it.
void check_packing(const Options& options) {
  const auto refuse_if = [&](bool asked, const std::string& why) {
    if (asked) throw apps::UsageError("packing " + why);
  };
  if (const std::string why = why_no_packing(); !why.empty()) throw apps::UsageError(why);
  refuse_if(options.stream == StreamChoice::host, "is not measured with --stream host");
  refuse_if(options.memory == MemoryChoice::user, "is not measured with --memory user: Views are the program's memory");
  refuse_if(options.touch, "is not measured with --touch: who unpacks reads all of it");
  refuse_if(options.sizes.front() < sizeof(int), "moves ints: --sizes begin at 4");
}

bool of_windows(const Bench& bench) {
  return bench.run == run_rma || bench.run == run_mpi_windows || bench.run == run_hash_table ||
         bench.run == run_sparse_exchange;
}

// The calling thread reaches memory of the library.
void check_windows(const Bench& bench, const Options& options) {
  const auto refuse_if = [&](bool asked, const std::string& what) {
    if (asked) throw apps::UsageError(fmt::format("{} {}", bench.name, what));
  };
  refuse_if(options.stream == StreamChoice::host, "is not measured with --stream host");
  refuse_if(options.memory == MemoryChoice::user, "is not measured with --memory user");
  refuse_if(options.depth > 1, "has no slots: --depth is for other benches");
  refuse_if(options.touch, "is not measured with --touch: what arrives is checked without it");
  refuse_if(options.sizes.front() < sizeof(std::uint64_t), "moves words: --sizes begin at 8");
  refuse_if(bench.run == run_mpi_windows && !mpi_windows_are_ours(),
            "needs libsluice_mpi_rma before MPI: mpiexec -n 2 env LD_PRELOAD=.../libsluice_mpi_rma.so ...");
}

void check_stream_mpi(const Options& options) {
  const auto refuse_if = [&](bool asked, const char* what) {
    if (asked) throw apps::UsageError(std::string("stream_mpi ") + what);
  };
  refuse_if(options.stream == StreamChoice::inline_, "is measured on a stream of the host");
  refuse_if(options.depth > 1, "has requests, whose slot is the buffer: --depth is for other benches");
  refuse_if(options.touch, "is not measured with --touch");
  if (const std::string why = why_no_stream_mpi(); !why.empty()) throw apps::UsageError(why);
}

void check_slices(const Options& options) {
  if (options.stream == StreamChoice::host) throw apps::UsageError("slices is not measured with --stream host");
  for (const std::string& backend : split(options.backend))
    if (backend != "threads" && backend != "shm")
      throw apps::UsageError("slices needs memory that all ranks map, which --backend " + backend + " has not");
}

void check_collectives(const Bench& bench, const Options& options) {
  const auto refuse_if = [&](bool asked, const char* what) {
    if (asked) throw apps::UsageError(fmt::format("{} {}", bench.name, what));
  };
  if (bench.run == run_slices) check_slices(options);
  refuse_if(options.memory == MemoryChoice::user, "is not measured with --memory user");
  refuse_if(options.depth > 1, "has no slots: --depth is for other benches");
  refuse_if(options.touch && bench.run == run_slices, "is not measured with --touch");
  refuse_if(options.touch && options.stream != StreamChoice::inline_, "has --touch in program order alone");
  refuse_if(options.sizes.front() % sizeof(double) != 0, "adds doubles: --sizes begin at 8");
}

void check_model(const Bench& bench, const Options& options) {
  if (bench.run != run_model) {
    if (!options.model.empty()) throw apps::UsageError("--write-model is for model");
    return;
  }
  if (options.ranks % 2 != 0) throw apps::UsageError("model needs an even number of ranks");
  if (options.sizes.size() < 2 || options.sizes.front() % sizeof(double) != 0)
    throw apps::UsageError("model adds doubles, and fits lines: --sizes begin at 8, and are several");
}

// CUP-ECS's columns describe ping-pongs of ints.
void check_columns(const Bench& bench, const Options& options) {
  if (options.columns == CsvColumns::sluice) return;
  const auto refuse_if = [&](bool wrong, const char* why) {
    if (wrong) throw apps::UsageError(fmt::format("--columns cup-ecs {}", why));
  };
  refuse_if(bench.run != run_latency && bench.run != run_packing, "is for latency and packing, which have round trips");
  refuse_if(options.csv.empty(), "needs a --csv FILE");
  refuse_if(options.sizes.front() < sizeof(int), "counts ints: --sizes begin at 4");
}

void check_against(const Bench& bench, const Options& options) {
  if (bench.rivals != nullptr) {
    check_rivals(options, bench.rivals);
    return;
  }
  for (const auto& rival : options.against) {
    if (rival != "all" && rival != "none") throw apps::UsageError(fmt::format("{} has no rivals", bench.name));
  }
}

}  // namespace

// By default `scale` runs without rivals: with more ranks than cores, a rival that polls without yielding its core
// takes milliseconds for a round trip.
const std::vector<Bench>& benches() {
  static const std::vector<Bench> all = {
      {"latency", "time of one way of a ping-pong", run_latency, &Rival::latency, "all", "8:4m", kInline, true, true, 2,
       2},
      {"bandwidth", "bytes per second, in windows of messages", run_bandwidth, &Rival::bandwidth, "all", "64:4m",
       kInline, true, true, 2, 2},
      {"rate", "messages per second, in windows of small messages", run_rate, &Rival::rate, "all", "8:4k", kInline,
       true, true, 2, 2},
      {"stream", "times on a stream of the host or a GPU: a round trip, a step of a halo, enqueueing", run_stream,
       &Rival::stream, "all", "8:64k", kHost, true, true, 2, 2},
      {"pipeline", "time of a step of a ring, enqueued on a stream of the host while it runs", run_pipeline,
       &Rival::pipeline, "all", "8,1m", kHost, false, true, 2, kAnyNumber},
      {"halo", "time of a step with 4 or 26 neighbours", run_halo, &Rival::halo, "all", "8:64k", kInline, true, true, 2,
       kAnyNumber},
      {"replay", "times of a plan that was captured into a graph, and is replayed", run_replay, &Rival::replay, "all",
       "8:64k", kCuda, true, true, 2, 2},
      {"device", "time of one way between kernels that put and wait by themselves", run_device, &Rival::device, "all",
       "8:64k", kCuda, true, true, 2, 2},
      // Its host stream may have a core of its own.
      {"overlap", "time of a step that computes while data moves", run_overlap, &Rival::overlap, "all", "4k:4m", kHost,
       false, false, 2, 2},
      {"scale", "time of one way of ping-pongs of several pairs at once", run_scale, &Rival::scale, "none", "8:4k",
       kInline, false, true, 2, kAnyNumber},
      {"rma", "time of an access to a window: put, get, atomics, flush, notices, counters and epochs", run_rma,
       &Rival::rma, "all", "8,64,512,4k,64k", kInline, false, true, 2, 2},
      {"mpi_windows",
       "time of an access to a window by MPI's calls through libsluice_mpi_rma, beside the C++ interface",
       run_mpi_windows, &Rival::rma, "none", "8,4k", kInline, false, true, 2, 2},
      {"hash_table", "time of the insert of a key into a table that is spread over all ranks", run_hash_table,
       &Rival::hash_table, "all", "8", kInline, false, true, 2, kAnyNumber},
      {"sparse_exchange", "time of a round of messages to ranks that do not expect them", run_sparse_exchange,
       &Rival::sparse_exchange, "all", "8,512,4k", kInline, false, true, 2, kAnyNumber},
      {"collectives", "time of a barrier, a sum, a broadcast, and exchanges of all ranks", run_collectives,
       &Rival::collectives, "all", "8:64k", kInline, false, true, 2, kAnyNumber},
      {"slices", "time of a sum by slices of memory that several ranks map", run_slices, &Rival::collectives, "all",
       "8k,64k,1m", kInline, false, true, 2, kAnyNumber},
      {"model", "the parameters of LogGP, and what they predict beside what is measured", run_model, nullptr, "none",
       "8:64k", kInline, false, true, 2, kAnyNumber},
      {"segments", "ranges per second of a segmented channel, beside messages of a channel", run_segments, &Rival::rate,
       "none", "8,512,4k,64k", kInline, false, true, 2, 2},
      {"messages", "time of a step of 4 messages to a rank that share a put, beside a put for each", run_messages,
       nullptr, "none", "8:4k", kInline, false, true, 2, 2},
      {"stream_mpi", "time of a round trip and of a step of a halo by MPI Advance's stream MPI, through libsluice_mpis",
       run_stream_mpi, &Rival::stream, "all", "8,1k,4k,64k", kHost, false, true, 2, 2},
      {"setup", "times of opening and closing a channel, and memory", run_setup, nullptr, "none", "64", kInline, false,
       true, 2, kAnyNumber},
      {"failure", "time from the death of a rank to the error at the others", run_failure, nullptr, "none", "64",
       kInline, true, true, 2, kAnyNumber},
      // Its threads compute on every core.
      {"progress", "time of a put to a rank that computes on every core, and how much that rank is slowed down",
       run_progress, nullptr, "none", "64k", kInline, false, false, 2, 2},
      {"packing", "time of one way of Views of Kokkos that have gaps, and of a step of six faces", run_packing,
       &Rival::packing, "all", "32:16m", kInline, false, true, 2, 2},
      {"copy", "time of a copy by a put, beside memcpy", run_copy, nullptr, "none", "8:64m", kInline, false, true, 1,
       1},
  };
  return all;
}

const Bench& choose(Options& options, int ranks) {
  const Bench& bench = *std::ranges::find_if(benches(), [&](const Bench& row) { return options.bench == row.name; });
  if (options.sizes.empty()) options.sizes = parse_sizes(bench.sizes);
  if (!options.stream) options.stream = bench.stream;
  if (options.against.empty()) options.against = {bench.against};
  // SLUICE_BACKENDS limits Sluice. The rivals are chosen as if it had been --backend, so that they use the same
  // network.
  if (const char* const allowed = std::getenv("SLUICE_BACKENDS"); allowed != nullptr && options.backend.empty())
    options.backend = allowed;
  options.ranks = ranks;
  check_ranks(bench, ranks);
  check_stream(bench, *options.stream);
  check_gpu(bench, options);
  check_settings(bench, options);
  if (bench.run == run_packing) check_packing(options);
  if (of_windows(bench)) check_windows(bench, options);
  if (bench.run == run_stream_mpi) check_stream_mpi(options);
  if (bench.run == run_collectives || bench.run == run_slices) check_collectives(bench, options);
  check_model(bench, options);
  check_channels(bench, options);
  check_batch(bench, options);
  check_columns(bench, options);
  check_against(bench, options);
  options.pin = options.pin.value_or(bench.pins && !of_gpu(options.stream));
  apps::check_writable(options.json);
  apps::check_writable(options.csv);
  apps::check_writable(options.model);
  return bench;
}

}  // namespace bench
