// SPDX-License-Identifier: Apache-2.0
// The context of all ranks, and memory: the calls of this process share them.
#pragma once

#include <sluice/context.hpp>

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "dialects/common/outcome.hpp"

namespace sluice::stream_mpi {

/// Lives from MPI_Init to MPI_Finalize.
class Job {
 public:
  explicit Job(Context made);

  /// Collective over MPI_COMM_WORLD, inside of MPI_Init. If a context cannot be made, logs why. `at_end` runs in
  /// MPI_Finalize, before the job ends.
  static void make(std::function<void()> at_end);
  /// @throws Refused{MPI_ERR_OTHER} before MPI_Init and after MPI_Finalize
  static std::shared_ptr<Job> current();

  /// Ranks of the context are those of MPI_COMM_WORLD.
  Context context;
  Scope scope;  ///< of the channels of messages
  /// Failures that a match has met, of other messages than its own: the next wait for a GPU's stream returns them.
  Faults untold;

  /// The rank in the context. @throws Refused for an intercommunicator, and a process that was spawned
  static Rank rank_of(MPI_Comm comm, int rank);
  /// The context of the ranks of a communicator, which is shared with others that have the same ranks. Any thread.
  Context of(MPI_Comm comm);
  /// A tag that no other channel of messages to this rank has. Any thread.
  Tag next_tag(Rank to);

  /// The bytes, as a part of memory that `allocate` made, or pinned. Any thread.
  Slice slice(std::byte* at, std::size_t bytes);
  std::byte* allocate(std::size_t bytes, Space space);
  /// @return false for other memory
  bool free(std::byte* memory);

  /// Keeps what MPI uses until it has ended, which is later than the job: for ever.
  static void keep(std::shared_ptr<void> used);

 private:
  std::mutex mutex_;
  std::map<std::vector<Rank>, Context> contexts_;
  std::map<Rank, Tag> tags_;
  std::map<std::byte*, Memory> memories_;
  Window alive_;  // by whose name peers notice that this rank has died
};

/// Notices the death of a rank that no channel leads to yet.
class PeerWatch {
 public:
  PeerWatch(Job& job, Rank peer) : job_(job), peer_(peer) {}
  /// Looks, once it was called for a while. @throws Error{Code::peer_lost}
  void look();

 private:
  Job& job_;
  Rank peer_;
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  std::optional<Target> target_;
};

}  // namespace sluice::stream_mpi
