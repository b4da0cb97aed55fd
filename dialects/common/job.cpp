// SPDX-License-Identifier: Apache-2.0
#include "dialects/common/job.hpp"

#include <sluice/mpi.hpp>

#include <chrono>
#include <exception>
#include <iterator>
#include <string>
#include <utility>

#include "dialects/common/background.hpp"
#include "dialects/common/outcome.hpp"
#include "dialects/common/progress.hpp"
#include "rma/mpi/at_finalize.hpp"
#include "rma/mpi/in_world.hpp"
#include "rma/mpi/log.hpp"

namespace sluice::stream_mpi {
namespace {

constexpr const char* kScope = "stream mpi";
constexpr std::size_t kWordBytes = 8;

struct Current {
  std::mutex mutex;
  std::shared_ptr<Job> job;
  std::function<void()> at_end;
};

Current& current_job() {
  static Current& made = *new Current;
  return made;
}

extern "C" int sluice_stream_mpi_end(MPI_Comm, int, void*, void*) {
  Current& current = current_job();
  const auto logged = [](auto step) { static_cast<void>(guarded("MPI_Finalize", step)); };  // MPI ends all the same
  logged([&] {
    if (current.at_end) current.at_end();
  });
  Background::end();
  MpiProgress::end();
  logged([&] {
    std::shared_ptr<Job> ending;
    const std::lock_guard lock(current.mutex);
    ending = std::exchange(current.job, nullptr);
  });
  return MPI_SUCCESS;
}

/// The ranks of `comm` in the context.
std::vector<Rank> in_context(MPI_Comm comm, const std::vector<int>& ranks) {
  int inter = 0;
  PMPI_Comm_test_inter(comm, &inter);
  if (inter != 0) throw Refused(kUnsupported, "an intercommunicator");
  std::vector<int> there = mpi_rma::in_world(comm, ranks);
  for (const int rank : there)
    if (rank == MPI_UNDEFINED) throw Refused(kUnsupported, "a communicator with ranks outside of MPI_COMM_WORLD");
  return there;
}

}  // namespace

Job::Job(Context made) : context(std::move(made)), scope(context.scope(kScope)) {
  alive_ = context.window(kScope, context.allocate(kWordBytes).all());
}

void Job::make(std::function<void()> at_end) {
  const int failed = guarded("stream MPI is not available", [&] {
    auto made = std::make_shared<Job>(mpi::context(MPI_COMM_WORLD));
    MpiProgress::prepare();
    Current& current = current_job();
    const std::lock_guard lock(current.mutex);
    current.job = std::move(made);
    current.at_end = std::move(at_end);
  });
  if (failed == 0) mpi_rma::at_finalize(&sluice_stream_mpi_end);
}

std::shared_ptr<Job> Job::current() {
  Current& current = current_job();
  const std::lock_guard lock(current.mutex);
  if (current.job == nullptr)
    throw Refused(MPI_ERR_OTHER, "MPI was not initialised by MPI_Init or MPI_Init_thread, or has ended");
  return current.job;
}

Rank Job::rank_of(MPI_Comm comm, int rank) { return in_context(comm, {rank}).front(); }

Context Job::of(MPI_Comm comm) {
  const std::vector<Rank> ranks = in_context(comm, mpi_rma::all_ranks(comm));
  const std::lock_guard lock(mutex_);
  const auto found = contexts_.find(ranks);
  if (found != contexts_.end()) return found->second;
  return contexts_.emplace(ranks, context.sub(ranks)).first->second;
}

Tag Job::next_tag(Rank to) {
  const std::lock_guard lock(mutex_);
  return tags_[to]++;
}

Slice Job::slice(std::byte* at, std::size_t bytes) {
  if (bytes == 0) return {};
  {
    const std::lock_guard lock(mutex_);
    const auto behind = memories_.upper_bound(at);
    if (behind != memories_.begin()) {
      const auto& [begin, memory] = *std::prev(behind);
      const auto offset = static_cast<std::size_t>(at - begin);
      if (offset < memory.bytes() && bytes <= memory.bytes() - offset) return memory.slice(offset, bytes);
    }
  }
  return context.region(at, bytes).all();
}

std::byte* Job::allocate(std::size_t bytes, Space space) {
  Memory memory = context.allocate(bytes, space);
  std::byte* const at = memory.data();
  const std::lock_guard lock(mutex_);
  memories_.emplace(at, std::move(memory));
  return at;
}

bool Job::free(std::byte* memory) {
  const std::lock_guard lock(mutex_);
  return memories_.erase(memory) == 1;
}

void Job::keep(std::shared_ptr<void> used) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::shared_ptr<void>>;
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(used));
}

void PeerWatch::look() {
  constexpr auto kPatience = std::chrono::milliseconds(500);
  if (!target_) {
    if (std::chrono::steady_clock::now() - began_ < kPatience) return;
    target_ = job_.context.target(peer_, kScope);
  }
  (void)target_->connected();
}

}  // namespace sluice::stream_mpi
