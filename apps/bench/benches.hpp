// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/bench/harness/options.hpp"
#include "apps/bench/harness/session.hpp"
#include "apps/bench/model/predict.hpp"
#include "apps/bench/rivals/rivals.hpp"

#include <span>
#include <string>
#include <vector>

namespace bench {

/// One NAME of the command line.
struct Bench {
  const char* name;
  const char* what;
  void (*run)(Session& session);
  RivalColumn rivals;   ///< the rivals of its first rows; nullptr: it has no rivals
  const char* against;  ///< the default of --against
  const char* sizes;    ///< the default of --sizes
  StreamChoice stream;  ///< the default of --stream; a GPU's stream if the bench runs on no other
  bool on_gpus;         ///< true if the bench can run on a GPU's stream
  bool pins;            ///< by default each rank is pinned to a core, unless it runs on a GPU's stream
  int min_ranks;
  int max_ranks;
};

const std::vector<Bench>& benches();

/// Finds the bench that the options name, and gives unset options its defaults.
/// @throws apps::UsageError if the bench cannot run with these options and so many ranks
const Bench& choose(Options& options, int ranks);

void run_latency(Session& session);
void run_bandwidth(Session& session);
void run_rate(Session& session);
void run_stream(Session& session);
void run_pipeline(Session& session);
void run_halo(Session& session);
void run_replay(Session& session);
void run_device(Session& session);
void run_overlap(Session& session);
void run_scale(Session& session);
/// `scale --channels`
void run_growth(Session& session);
void run_rma(Session& session);
void run_collectives(Session& session);
/// Sums by slices of memory that several ranks map, in program order.
void run_slices(Session& session);
/// MPI's calls in a process in whose windows libsluice_mpi_rma serves them, beside ours.
void run_mpi_windows(Session& session);
void run_hash_table(Session& session);
void run_sparse_exchange(Session& session);
void run_segments(Session& session);
void run_messages(Session& session);
/// MPI Advance's functions in a process in which libsluice_mpis stands before MPI.
void run_stream_mpi(Session& session);
/// LogGP, and what it predicts of latency, bandwidth, halo and collectives.
void run_model(Session& session);
void run_setup(Session& session);
/// Measures the memory that ends of channels take with the backend of the session, as `setup` does.
MemoryCosts measure_memory_costs(Session& session);
void run_copy(Session& session);
void run_failure(Session& session);
void run_progress(Session& session);
void run_packing(Session& session);

/// The first argument of the process that `run_copy` starts, and its main function.
inline constexpr const char* kServeCopies = "serve-copies";
/// @param arguments  those after the first: the file of the pages to copy, their bytes, their address
int serve_copies(std::span<char* const> arguments);

}  // namespace bench
