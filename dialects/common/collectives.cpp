// SPDX-License-Identifier: Apache-2.0
#include "dialects/common/collectives.hpp"

#include <sluice/collectives.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>

#include "collectives/awaited.hpp"
#include "dialects/common/background.hpp"
#include "dialects/common/beside.hpp"
#include "dialects/common/closing.hpp"
#include "dialects/common/job.hpp"
#include "dialects/common/outcome.hpp"
#include "dialects/common/pairs.hpp"
#include "dialects/common/transfers.hpp"
#include "rma/mpi/operations.hpp"

namespace sluice::stream_mpi {
namespace {

class Together final : public Operation, private Pending {
 public:
  explicit Together(Collective collective) : collective_(std::move(collective)) {}

  void start() override {
    handover_.await_take_back();  // a queue may have ended between a start and its wait
    handover_.rethrow_failure();
    or_give_up([this] { collective_.start(Stream::program_order()); });
    handover_.to_background();
  }
  bool advance() override {
    if (!handover_.take_back()) return false;
    handover_.rethrow_failure();
    return or_give_up([this] { return collective_.test(); });
  }
  void finish() override {
    handover_.await_take_back();
    handover_.rethrow_failure();
    or_give_up([this] { collective_.wait(Stream::program_order()); });
  }
  void give_up() noexcept override {
    handover_.await_take_back();
    begin_to_close(collective_);
  }

  bool connected() override {
    try {
      collective_.wait_connected(Timeout::zero());
    } catch (const Error& error) {
      if (error.code() != Code::timeout) throw;
      return false;
    }
    return true;
  }
  void enqueue_start(Stream stream) override {
    collective_.start(stream);
    incomplete_ = true;
  }
  bool incomplete() const noexcept override { return incomplete_; }
  void leave(const Place& start) override {
    if (!incomplete_) return;
    beside_.leave(start);
    handover_.to_background();
  }
  std::shared_ptr<device::Handshake> take_back() noexcept override {
    handover_.await_take_back();
    incomplete_ = false;
    return beside_.take_back();
  }
  void enqueue_wait(Stream stream) override {
    handover_.rethrow_failure();
    collective_.wait(stream);
  }
  void close(std::optional<Timeout> timeout) override {
    handover_.await_take_back();
    collective_.close(timeout);
  }

 private:
  bool go_on(detail::EndsWait& waits) noexcept override {
    return handover_.in_background([&] {
      if (beside_.left()) return or_give_up([&] { return go_on_beside(waits); });
      const bool complete = or_give_up([this] { return collective_.test(); });
      if (!complete) detail::add_awaited(collective_, waits);
      return !complete;
    });
  }
  bool go_on_beside(detail::EndsWait& waits) {
    const auto advance = [&](Stream own) {
      const bool enqueued = detail::advance(collective_, own);
      if (!enqueued) detail::add_awaited(collective_, waits);
      return !enqueued;
    };
    if (detail::can_advance(collective_)) return beside_.go_on(waits, advance);
    detail::add_awaited(collective_, waits);
    return true;
  }

  /// Called by the owner. Peers that need this rank learn its failure from the collective that it closes.
  template <class Work>
  std::invoke_result_t<Work> or_give_up(Work work) {
    try {
      return work();
    } catch (...) {
      begin_to_close(collective_);
      throw;
    }
  }

  Collective collective_;
  bool incomplete_ = false;  // on a GPU's stream
  Beside beside_;
  Handover handover_;
  Background::Listed listed_{*this};
};

/// The number of a collective, on its way from rank 0.
struct Number64 {
  std::uint64_t number = 0;
  MPI_Request request = MPI_REQUEST_NULL;
};

std::uint64_t next_number(const Job& job) {
  static std::atomic<std::uint32_t> count = 0;
  return static_cast<std::uint64_t>(job.context.rank()) << 32 | count++;
}

using Make = std::function<std::shared_ptr<Operation>(Context& context, const std::string& name)>;

class Naming final : public Pairing {
 public:
  Naming(std::shared_ptr<Job> job, MPI_Comm comm, Make make)
      : job_(std::move(job)), context_(job_->of(comm)), make_(std::move(make)) {
    number_->number = next_number(*job_);
    PMPI_Ibcast(&number_->number, 1, MPI_UINT64_T, 0, comm, &number_->request);
  }
  Naming(const Naming&) = delete;
  Naming& operator=(const Naming&) = delete;
  ~Naming() override {
    if (number_->request != MPI_REQUEST_NULL) Job::keep(number_);
  }

  bool advance() override {
    int flag = 0;
    PMPI_Test(&number_->request, &flag, MPI_STATUS_IGNORE);
    if (flag == 0) return false;
    operation = make_(context_, "stream mpi " + std::to_string(number_->number));
    return true;
  }

 private:
  std::shared_ptr<Job> job_;
  Context context_;
  Make make_;
  std::shared_ptr<Number64> number_ = std::make_shared<Number64>();
};

std::optional<Number> number_of(const mpi_rma::Basic* basic) {
  if (basic == nullptr || !basic->dense()) return std::nullopt;
  if (basic->kind == mpi_rma::Kind::integer) {
    if (basic->size == 4) return basic->is_signed ? Number::int32 : Number::uint32;
    if (basic->size == 8) return basic->is_signed ? Number::int64 : Number::uint64;
  }
  if (basic->kind == mpi_rma::Kind::floating) {
    if (basic->size == 4) return Number::float32;
    if (basic->size == 8) return Number::float64;
  }
  return std::nullopt;
}

std::optional<Op> op_of(MPI_Op op) {
  const std::array<std::pair<MPI_Op, Op>, 7> all{{{MPI_SUM, Op::sum},
                                                  {MPI_PROD, Op::product},
                                                  {MPI_MIN, Op::min},
                                                  {MPI_MAX, Op::max},
                                                  {MPI_BAND, Op::bit_and},
                                                  {MPI_BOR, Op::bit_or},
                                                  {MPI_BXOR, Op::bit_xor}}};
  const auto* const found = std::ranges::find(all, op, &std::pair<MPI_Op, Op>::first);
  return found == all.end() ? std::nullopt : std::optional(found->second);
}

bool is_predefined(MPI_Op op) {
  return op_of(op) || std::ranges::count(std::initializer_list<MPI_Op>{MPI_LAND, MPI_LOR, MPI_LXOR, MPI_MINLOC,
                                                                       MPI_MAXLOC, MPI_REPLACE, MPI_NO_OP},
                                         op) > 0;
}

/// For operations that Sluice does not have. Pairs are combined here, all else by MPI, in the thread of the stream.
Combiner combiner_of(const Reduction& reduction, const mpi_rma::Flat& flat) {
  const auto bytes = static_cast<std::size_t>(flat.extent);
  if (flat.only != nullptr) {
    if (auto combine = combine_pairs(reduction.op, *flat.only))
      return {.combine = std::move(combine), .bytes = bytes, .commutative = true};
  }
  int level = MPI_THREAD_SINGLE;
  PMPI_Query_thread(&level);
  if (level < MPI_THREAD_MULTIPLE)
    throw Refused(kUnsupported, "an operation that MPI carries out, without MPI_THREAD_MULTIPLE");
  int commutes = 0;
  PMPI_Op_commutative(reduction.op, &commutes);
  const auto combine = [type = reduction.type, op = reduction.op, begin = flat.begin](const void* in, void* in_out,
                                                                                      std::size_t count) {
    // MPI's buffers lie before the data, by the offset at which the datatype begins.
    const int code = PMPI_Reduce_local(static_cast<const std::byte*>(in) - begin,
                                       static_cast<std::byte*>(in_out) - begin, static_cast<int>(count), type, op);
    if (code != MPI_SUCCESS) throw Refused(code, "MPI_Reduce_local fails");
  };
  return {.combine = combine, .bytes = bytes, .commutative = commutes != 0};
}

void check(const Reduction& reduction, const mpi_rma::Flat& flat) {
  if (reduction.op == MPI_REPLACE || reduction.op == MPI_NO_OP)
    throw Refused(MPI_ERR_OP, "an operation of one-sided communication alone");
  const bool pair = flat.only != nullptr && flat.only->second_at != 0 && flat.elements == 1 &&
                    static_cast<std::size_t>(flat.extent) == flat.only->extent;
  if (!flat.dense && !pair) throw Refused(kUnsupported, "an allreduce of elements that do not follow each other");
  if (!is_predefined(reduction.op)) return;
  if (flat.only == nullptr) throw Refused(MPI_ERR_OP, "a predefined operation on elements of several types");
  if (flat.only->second_at != 0 && static_cast<std::size_t>(flat.extent) != flat.only->extent)
    throw Refused(kUnsupported, "an allreduce of pairs in a derived datatype");
  mpi_rma::check_operation(reduction.op, *flat.only);
}

}  // namespace

std::unique_ptr<Pairing> pair_barrier(std::shared_ptr<Job> job, MPI_Comm comm) {
  return std::make_unique<Naming>(std::move(job), comm, [](Context& context, const std::string& name) {
    return std::make_shared<Together>(barrier(context, name));
  });
}

std::unique_ptr<Pairing> pair_allreduce(const std::shared_ptr<Job>& job, MPI_Comm comm, const Reduction& reduction) {
  const mpi_rma::Flat& flat = mpi_rma::flat_of(reduction.type);
  check(reduction, flat);
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(flat.extent, reduction.count, &bytes))
    throw Refused(MPI_ERR_COUNT, "an allreduce of 2^64 bytes or more");
  const auto op = op_of(reduction.op);
  const auto number = number_of(flat.only);
  Combiner combiner;
  if (!op || !number) combiner = combiner_of(reduction, flat);
  auto* const to = static_cast<std::byte*>(reduction.to) + flat.begin;
  auto* const from =
      reduction.from == MPI_IN_PLACE ? to : static_cast<std::byte*>(const_cast<void*>(reduction.from)) + flat.begin;
  return std::make_unique<Naming>(
      job, comm,
      [job, from, to, bytes, op, number, combiner = std::move(combiner)](
          Context& context, const std::string& name) -> std::shared_ptr<Operation> {
        if (bytes == 0) return make_nothing();
        const Slice in = job->slice(from, bytes);
        const Slice out = from == to ? in : job->slice(to, bytes);
        return std::make_shared<Together>(op && number ? allreduce(context, name, *op, *number, in, out)
                                                       : allreduce(context, name, combiner, in, out));
      });
}

}  // namespace sluice::stream_mpi
