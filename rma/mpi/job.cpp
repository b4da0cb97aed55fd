// SPDX-License-Identifier: Apache-2.0
#include "rma/mpi/job.hpp"

#include <sluice/mpi.hpp>

#include <algorithm>
#include <array>
#include <exception>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>

#include "rma/mpi/finalize.hpp"
#include "rma/mpi/in_world.hpp"
#include "rma/mpi/log.hpp"
#include "rma/mpi/pause.hpp"
#include "rma/mpi/yield.hpp"

namespace sluice::mpi_rma {
namespace {

// The words of a rank of a communicator: two for the exchange of places, and those of the meeting.
constexpr std::size_t kMeetingWords = 2;
constexpr std::size_t kWordsOfRanks = kMeetingWords + Meeting::kWords;

std::uint64_t packed(Place place) { return std::uint64_t{place.chunk} << 32 | place.first; }
Place unpacked(std::uint64_t word) {
  return {static_cast<std::uint32_t>(word >> 32), static_cast<std::uint32_t>(word)};
}

using Held = std::shared_ptr<Job>;
using HeldRanks = std::shared_ptr<Ranks>;

extern "C" int sluice_rma_drop_ranks(MPI_Comm, int, void* held, void*) {
  delete static_cast<HeldRanks*>(held);
  return MPI_SUCCESS;
}

/// The attribute of a communicator of the program's.
int ranks_key() {
  static const int key = [] {
    int made = MPI_KEYVAL_INVALID;
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &sluice_rma_drop_ranks, &made, nullptr);
    return made;
  }();
  return key;
}

/// MPI_Comm_dup would call the program's functions for its attributes.
MPI_Comm same_ranks(MPI_Comm comm) {
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Comm made = MPI_COMM_NULL;
  PMPI_Comm_group(comm, &group);
  PMPI_Comm_create(comm, group, &made);
  PMPI_Group_free(&group);
  return made;
}

bool has_all(const Job& job, const std::vector<int>& world) {
  const auto is_in = [&](int rank) { return rank != MPI_UNDEFINED && std::ranges::binary_search(job.world, rank); };
  return std::ranges::all_of(world, is_in);
}

/// A job of this rank that has all these ranks; null: there is none.
Held job_of(const std::vector<int>& world) {
  Held found;
  for (const Held& job : living_jobs())
    if (has_all(*job, world) && (found == nullptr || job->id < found->id)) found = job;
  return found;
}

/// A job that has all ranks of `mine`, if every one of them has chosen the same. They differ only if another thread of
/// one of them has just made a job.
Held common_job(const std::vector<int>& world, MPI_Comm mine) {
  Held known = job_of(world);
  const std::uint64_t id = known != nullptr ? known->id : 0;
  const std::array<std::uint64_t, 2> both{id, ~id};  // their least is the least id, and the negation of the largest
  std::array<std::uint64_t, 2> least{};
  PMPI_Allreduce(both.data(), least.data(), 2, MPI_UINT64_T, MPI_MIN, mine);
  return least[0] != 0 && least[0] == ~least[1] ? known : nullptr;
}

/// 0: rank 0 has no random numbers.
std::uint64_t new_id(MPI_Comm mine) {
  std::uint64_t id = 0;
  try {
    std::random_device random;
    id = (std::uint64_t{random()} << 32 | random()) | 1;
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): the other ranks wait for the broadcast
  }
  PMPI_Bcast(&id, 1, MPI_UINT64_T, 0, mine);
  return id;
}

/// What all ranks of `comm` agree on: true if `mine` is true at all.
bool all_agree(bool mine, MPI_Comm comm) {
  int here = mine ? 1 : 0;
  int all = 0;
  PMPI_Allreduce(&here, &all, 1, MPI_INT, MPI_MIN, comm);
  return all != 0;
}

void leave_to_mpi(const std::string& why) { log(Level::warn, "MPI serves the windows of a communicator: " + why); }

Held make_job(std::vector<int> world, MPI_Comm mine) {
  Held job;
  std::string why;
  const std::uint64_t id = new_id(mine);
  try {
    if (id == 0) throw std::runtime_error("its first rank has no source of random numbers");
    job = std::make_shared<Job>(mpi::context(mine), id);
    std::ranges::sort(world);
    job->world = std::move(world);
  } catch (const std::exception& reason) {
    why = reason.what();
  }
  if (all_agree(job != nullptr, mine)) {
    yield_if_crowded(mine);
    end_with_finalize(job);
    return job;
  }
  if (!why.empty()) leave_to_mpi(why);
  return nullptr;
}

}  // namespace

Ranks::Ranks(MPI_Comm own) : comm(own) {
  PMPI_Comm_rank(comm, &rank);
  PMPI_Comm_size(comm, &size);
}

Ranks::~Ranks() {
  int finalized = 0;
  PMPI_Finalized(&finalized);
  if (finalized != 0 || finalizing()) return;
  if (job != nullptr) job->control.give_back(members_[static_cast<std::size_t>(rank)].place, kWordsOfRanks);
  MPI_Comm freed = comm;
  PMPI_Comm_free(&freed);
}

/// Opens what the first window needs, such as descriptors, while MPI may yet serve the windows.
std::string Ranks::reach_members(Job& its) const {
  try {
    for (const Member& member : members_) {
      if (member.place == kNoPlace) continue;
      its.control.maps(member.rank, member.place);
      its.control.read(member.rank, member.place, 0, 1);
    }
  } catch (const std::exception& reason) {
    return reason.what();
  }
  return {};
}

void Ranks::enter(const std::shared_ptr<Job>& its) {
  if (its == nullptr) return;
  Member mine{its->context.rank(), kNoPlace};
  std::string why;
  try {
    mine.place = its->control.take(kWordsOfRanks);
  } catch (const std::exception& reason) {
    why = reason.what();
  }
  members_.resize(static_cast<std::size_t>(size));
  PMPI_Allgather(&mine, sizeof mine, MPI_BYTE, members_.data(), sizeof mine, MPI_BYTE, comm);
  if (why.empty()) why = reach_members(*its);
  if (all_agree(why.empty(), comm)) {
    job = its;
    meeting_.emplace(job->control, kMeetingWords, rank, size);
    return;
  }
  if (!why.empty()) leave_to_mpi(why);
  if (mine.place != kNoPlace) its->control.give_back(mine.place, kWordsOfRanks);
}

void Ranks::meet() {
  const auto await = [&](auto ready) {
    for (Pause pause(*this, "for all ranks of a communicator, which make a window"); !ready();) pause();
  };
  meeting_->meet([&](int i) { return members_[static_cast<std::size_t>(i)]; }, await);
}

bool Ranks::reach_private() {
  if (reach_private_) return *reach_private_;
  std::string why;
  try {
    job->control.offer_private();
  } catch (const std::exception& reason) {
    why = reason.what();
  }
  // Here MPI makes progress, and a rank that is late is waited for.
  const bool offered = all_agree(why.empty(), comm);
  try {
    for (const Member& member : members_)
      if (offered && why.empty()) why = job->control.private_obstacle(member.rank);
  } catch (const std::exception& reason) {
    why = reason.what();
  }
  reach_private_ = offered && all_agree(why.empty(), comm);
  if (!why.empty()) log(Level::warn, "MPI serves the windows of the program's own memory on a communicator: " + why);
  return *reach_private_;
}

/// Not by Context::check, which throws the failures of all communicators, and each of them once.
void Ranks::check_alive() const {
  for (const Member& member : members_) job->control.check_alive(member.rank, member.place);
}

std::vector<Member> Ranks::exchange(Place mine) {
  // Two words in turn: after the next meeting of all ranks, no rank reads the old one.
  const std::size_t word = exchanges_++ % 2;
  std::atomic_ref(job->control.own(members_[static_cast<std::size_t>(rank)].place)[word]).store(packed(mine));
  meet();
  std::vector<Member> all = members_;
  for (Member& member : all) member.place = unpacked(job->control.read(member.rank, member.place, word, 1).front());
  return all;
}

std::shared_ptr<Ranks> Ranks::of(MPI_Comm of_program) {
  void* held = nullptr;
  int flag = 0;
  PMPI_Comm_get_attr(of_program, ranks_key(), static_cast<void*>(&held), &flag);
  if (flag != 0) return *static_cast<HeldRanks*>(held);
  auto ranks = std::make_shared<Ranks>(same_ranks(of_program));
  std::vector<int> world = in_world(of_program, all_ranks(of_program));
  Held job = common_job(world, ranks->comm);
  if (job == nullptr) job = make_job(std::move(world), ranks->comm);
  ranks->enter(job);
  PMPI_Comm_set_attr(of_program, ranks_key(), new HeldRanks(ranks));
  return ranks;
}

}  // namespace sluice::mpi_rma
