// SPDX-License-Identifier: Apache-2.0
// The context of the windows on a communicator.
#pragma once

#include "rma/mpi/control.hpp"
#include "rma/mpi/meeting.hpp"

#include <sluice/context.hpp>

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace sluice::mpi_rma {

/// A context of Sluice, and the words of its windows. It serves the windows of all later communicators whose ranks are
/// ranks of it, and lives until MPI_Finalize.
class Job {
 public:
  Job(Context made, std::uint64_t number) : context(std::move(made)), id(number), control(context) {
    control.open_mailbox();
  }

  Context context;
  const std::uint64_t id;  ///< the same at all ranks
  Control control;
  std::vector<int> world;  ///< the ranks as those of MPI_COMM_WORLD, sorted
};

/// A communicator of our own with the ranks of one of the program's, and the job of its windows. It lives as long as
/// that communicator, or a window on it. New windows need no message of MPI's: where ranks outnumber cores, MPI's
/// collective calls take long, since MPI spins.
class Ranks {
 public:
  explicit Ranks(MPI_Comm own);
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  ~Ranks();

  const MPI_Comm comm;
  int rank = 0;
  int size = 0;
  std::shared_ptr<Job> job;  ///< null: they cannot have one

  /// Collective over `of_program`, an intracommunicator. Makes them with the first window. If they cannot have a job,
  /// logs why.
  static std::shared_ptr<Ranks> of(MPI_Comm of_program);

  /// Collective: the places that all ranks name, with the ranks in the context.
  std::vector<Member> exchange(Place mine);
  /// Collective: returns once all ranks have called it.
  void meet();
  /// Collective: true if all ranks reach memory of each other's that is not mapped. The first call finds out; if they
  /// do not, it logs why.
  bool reach_private();
  /// @throws Error, in each call, if one of the ranks has died. Any thread may call it.
  void check_alive() const;

 private:
  void enter(const std::shared_ptr<Job>& its);
  /// Why they cannot be reached; empty: they are.
  std::string reach_members(Job& its) const;

  std::vector<Member> members_;
  std::optional<Meeting> meeting_;
  std::uint64_t exchanges_ = 0;
  std::optional<bool> reach_private_;
};

}  // namespace sluice::mpi_rma
