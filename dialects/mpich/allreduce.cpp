// SPDX-License-Identifier: Apache-2.0
// Allreduces whose buffers are named anew each time, by a collective on buffers of the library's own.
#include "dialects/mpich/allreduce.hpp"

#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "device/copy_anywhere.hpp"
#include "dialects/common/job.hpp"
#include "dialects/common/layout.hpp"
#include "dialects/messages/at_end.hpp"
#include "dialects/messages/communicators.hpp"
#include "dialects/messages/host_operation.hpp"
#include "dialects/messages/lane.hpp"
#include "rma/mpi/types.hpp"

namespace sluice::mpich {
namespace {

using stream_mpi::Job;
using stream_mpi::Operation;
using stream_mpi::Reduction;
using stream_mpi::Refused;

/// The collective of one communicator, count, datatype and operation. The stream of the communicator carries out one
/// allreduce after another.
struct Reducer {
  explicit Reducer(std::shared_ptr<Job> its_job) : job(std::move(its_job)) {}
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;
  ~Reducer() {
    collective = nullptr;
    pairing = nullptr;
    job->free(in);
    job->free(out);
  }

  std::shared_ptr<Job> job;
  std::unique_ptr<stream_mpi::Pairing> pairing;  // null once there is a collective
  std::shared_ptr<Operation> collective;
  std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t bytes = 0;
};

using ReducerKey = std::tuple<std::uint64_t, int, MPI_Datatype, MPI_Op>;

struct Reducers {
  std::mutex mutex;
  std::map<ReducerKey, std::shared_ptr<Reducer>> all;
  std::vector<std::shared_ptr<Reducer>> left;  // of communicators that were freed
};

Reducers& reducers() {
  static Reducers& made = *new Reducers;
  return made;
}

/// Puts the reducers of a freed communicator aside, since its stream may still have allreduces.
void leave_communicator(std::uint64_t number) {
  const std::lock_guard lock(reducers().mutex);
  std::erase_if(reducers().all, [&](auto& entry) {
    if (std::get<0>(entry.first) != number) return false;
    reducers().left.push_back(std::move(entry.second));
    return true;
  });
}

/// Ends the reducers aside that no stream uses any more, without the mutex, since channels may wait for their peers.
void end_unused() {
  std::vector<std::shared_ptr<Reducer>> unused;
  const std::lock_guard lock(reducers().mutex);
  for (auto& one : reducers().left)
    if (one.use_count() == 1) unused.push_back(std::move(one));
  std::erase(reducers().left, nullptr);
}

void end_reducers() {
  const std::lock_guard lock(reducers().mutex);
  reducers().all.clear();
  reducers().left.clear();
}

class Reducing final : public stream_mpi::HostOperation {
 public:
  Reducing(std::shared_ptr<Reducer> reducer, const void* from, void* to, stream_mpi::Layout::Copy* copy,
           Timeout timeout)
      : reducer_(std::move(reducer)), from_(from), to_(to), copy_(copy), timeout_(timeout) {}

  /// Without numbers of this rank no rank gets a sum: the others learn that the collective is closed.
  void start() override {
    try {
      copy_(reducer_->in, from_, reducer_->bytes);
    } catch (...) {
      give_up();
      throw;
    }
    reducer_->collective->start();
  }
  bool advance() override {
    stream_mpi::progress_lanes();  // a peer may need a message before it takes part
    if (!reducer_->collective->advance()) return false;
    copy_(to_, reducer_->out, reducer_->bytes);
    reducer_ = nullptr;  // a line keeps operations that are complete
    return true;
  }
  void finish() override {
    if (stream_mpi::wait_until(timeout_, [this] { return advance(); })) return;
    give_up();
    throw Refused(MPI_ERR_OTHER, "an allreduce has lasted longer than SLUICE_TIMEOUT");
  }
  /// The reducer stays, and later allreduces fail: a new one could meet a peer's that belongs to another call.
  void give_up() noexcept override {
    if (reducer_ != nullptr) reducer_->collective->give_up();
  }

 private:
  std::shared_ptr<Reducer> reducer_;
  const void* from_;
  void* to_;
  stream_mpi::Layout::Copy* copy_;
  Timeout timeout_;
};

void check(const Reduction& reduction) {
  if (reduction.count < 0) throw Refused(MPI_ERR_COUNT, "a negative count");
  if (reduction.type == MPI_DATATYPE_NULL) throw Refused(MPI_ERR_TYPE, "a null datatype");
  if (reduction.op == MPI_OP_NULL) throw Refused(MPI_ERR_OP, "a null operation");
  int integers = 0;
  int addresses = 0;
  int types = 0;
  int combiner = MPI_COMBINER_NAMED;
  PMPI_Type_get_envelope(reduction.type, &integers, &addresses, &types, &combiner);
  if (combiner != MPI_COMBINER_NAMED) throw Refused(stream_mpi::kUnsupported, "an allreduce of a derived datatype");
  // Handles of other operations may come again for another one.
  for (const MPI_Op op : {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_LAND, MPI_LOR, MPI_LXOR,
                          MPI_MINLOC, MPI_MAXLOC})
    if (reduction.op == op) return;
  throw Refused(stream_mpi::kUnsupported, "an allreduce with an operation of the program's own");
}

std::shared_ptr<Reducer> make_reducer(MPI_Comm comm, const Reduction& reduction) {
  const std::shared_ptr<Job> job = Job::current();
  auto made = std::make_shared<Reducer>(job);
  made->bytes =
      static_cast<std::size_t>(mpi_rma::flat_of(reduction.type).extent) * static_cast<std::size_t>(reduction.count);
  made->in = job->allocate(made->bytes, Space::host);
  made->out = job->allocate(made->bytes, Space::host);
  made->pairing =
      stream_mpi::pair_allreduce(job, comm, {made->in, made->out, reduction.count, reduction.type, reduction.op});
  return made;
}

/// Blocks until rank 0 has named the collective. False: a timeout, after which it may be called again.
/// @throws Error recorded when the pairing failed
bool pair(Reducer& reducer) {
  if (reducer.pairing == nullptr) return true;
  const Timeout timeout = reducer.job->context.connect_timeout();
  if (!stream_mpi::wait_until(timeout, [&] { return reducer.pairing->advance(); })) return false;
  reducer.collective = std::exchange(reducer.pairing, nullptr)->operation;
  return true;
}

std::shared_ptr<Reducer> reducer_of(MPI_Comm comm, const Reduction& reduction) {
  static const bool ended =
      (stream_mpi::at_end(stream_mpi::Phase::collectives, end_reducers), stream_mpi::at_free(leave_communicator), true);
  static_cast<void>(ended);
  const ReducerKey key{stream_mpi::number_of(comm), reduction.count, reduction.type, reduction.op};
  std::shared_ptr<Reducer> reducer;
  {
    const std::lock_guard lock(reducers().mutex);
    const auto found = reducers().all.find(key);
    if (found != reducers().all.end()) reducer = found->second;
  }
  if (reducer == nullptr) {
    end_unused();
    reducer = make_reducer(comm, reduction);
    const std::lock_guard lock(reducers().mutex);
    reducers().all.emplace(key, reducer);
  }
  // After a timeout the reducer stays: its MPI_Ibcast cannot be taken back, and a second one would get the name of the
  // next allreduce.
  try {
    if (pair(*reducer)) return reducer;
  } catch (...) {
    const std::lock_guard lock(reducers().mutex);
    reducers().all.erase(key);
    throw;
  }
  throw Refused(stream_mpi::kNotReady, "rank 0 has not called MPIX_Allreduce_enqueue for SLUICE_CONNECT_TIMEOUT");
}

}  // namespace

void enqueue_allreduce(stream_mpi::Line& line, MPI_Comm comm, const Reduction& reduction) {
  check(reduction);
  line.check();
  if (reduction.count == 0) return;
  const void* const from = reduction.from == MPI_IN_PLACE ? reduction.to : reduction.from;
  // On a GPU's stream, the buffers may lie in the memory of the GPU.
  auto* const copy = line.gpu() ? &device::copy_anywhere : &stream_mpi::Layout::copy_on_host;
  const std::shared_ptr<stream_mpi::Operation> operation = std::make_shared<Reducing>(
      reducer_of(comm, reduction), from, reduction.to, copy, Job::current()->context.timeout());
  line.start(std::array{&operation});
  line.wait_all(std::array{&operation});
}

}  // namespace sluice::mpich
