// SPDX-License-Identifier: Apache-2.0
// Operations in the order of a host stream: the thread of the stream carries them out, or a host that waits.
#include "dialects/common/host_line.hpp"

#include <sluice/error.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/limit.hpp"
#include "dialects/common/outcome.hpp"
#include "rma/rest.hpp"

namespace sluice::stream_mpi {
namespace {

constexpr const char* kWhere = "stream MPI, on a host stream";
constexpr auto kOwnYields = std::chrono::milliseconds(1);

template <class Work>
void noting(Faults& faults, Work work) {
  faults.note(guarded(kWhere, work));
}

using Unfinished = std::vector<Operation*>;

/// Goes on with each; those that are complete, or have failed, are left out. True: there was one.
bool advance_all(Unfinished& operations, Faults& faults) {
  return std::erase_if(operations, [&](Operation* operation) {
           bool complete = true;
           noting(faults, [&] { complete = operation->advance(); });
           return complete;
         }) > 0;
}

bool all_passive(const Unfinished& operations) {
  return std::ranges::all_of(operations, [](const Operation* operation) { return operation->passive(); });
}

/// Sets a flag when the stream has run it, or has stopped and destroys it.
class Mark {
 public:
  using Flag = std::atomic<bool>;

  explicit Mark(std::shared_ptr<Flag> reached) : reached_(std::move(reached)) {}
  Mark(Mark&&) noexcept = default;
  Mark(const Mark&) = delete;
  Mark& operator=(Mark&&) = delete;
  Mark& operator=(const Mark&) = delete;
  ~Mark() {
    if (reached_ == nullptr) return;
    reached_->store(true, std::memory_order_release);
    reached_->notify_one();
  }

  void operator()() const noexcept {}

 private:
  std::shared_ptr<Flag> reached_;
};

}  // namespace

/// Operations of one start or wait. Consecutive items with the same operations share it.
struct HostLine::Batch {
  Operations operations;
  std::shared_ptr<Faults> faults;
  Timeout limit;

  static void start_all(const Batch& batch) {
    for (const auto& operation : batch.operations) noting(*batch.faults, [&] { operation->start(); });
  }
  static void complete_all(const Batch& batch);
};

/// The last one may block, and so may those that peers need nothing of.
void HostLine::Batch::complete_all(const Batch& batch) {
  constexpr auto kNap = std::chrono::microseconds(50);
  Faults& faults = *batch.faults;
  static thread_local Unfinished operations;  // keeps its memory from item to item
  operations.clear();
  for (const auto& operation : batch.operations) operations.push_back(operation.get());
  std::optional<base::Limit> limit;  // a wait for what has arrived reads no clock
  rma::Rest rest(0);
  for (;;) {
    if (advance_all(operations, faults)) rest = rma::Rest(0);
    if (operations.size() <= 1 || all_passive(operations)) break;
    if (!limit) limit.emplace(batch.limit);
    if (limit->over()) {
      noting(faults, [] { throw Refused(MPI_ERR_OTHER, "a wait has lasted longer than SLUICE_TIMEOUT"); });
      return;
    }
    if (!rest.spin_or_yield(kOwnYields)) std::this_thread::sleep_for(kNap);
  }
  for (Operation* const operation : operations) noting(faults, [&] { operation->finish(); });
}

/// An item of the stream. A stream that has stopped destroys it without running it, which is an error.
class HostLine::Item {
 public:
  Item(Step* step, std::shared_ptr<const Batch> batch) : step_(step), batch_(std::move(batch)) {}
  Item(Item&&) noexcept = default;
  Item(const Item&) = delete;
  Item& operator=(Item&&) = delete;
  Item& operator=(const Item&) = delete;
  ~Item() {
    if (batch_ != nullptr) batch_->faults->note(MPI_ERR_OTHER);
  }

  void operator()() {
    const std::shared_ptr<const Batch> batch = std::move(batch_);
    noting(*batch->faults, [&] { step_(*batch); });
  }

 private:
  Step* step_;
  std::shared_ptr<const Batch> batch_;
};

/// Items of a stream of the line's own, in order. The stream's thread or a waiting host runs them, one of them at a
/// time.
class HostLine::OwnItems {
 public:
  /// True: the caller enqueues a call of `called` on the stream.
  bool add(Item item) {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
    return !std::exchange(calling_, true);
  }
  /// The stream has refused that call: the next item needs another.
  void not_called() {
    const std::lock_guard lock(mutex_);
    calling_ = false;
  }
  /// As full as a host stream that holds its host back.
  bool full() {
    constexpr std::size_t kMost = 65536;
    const std::lock_guard lock(mutex_);
    return items_.size() >= kMost;
  }
  /// On the stream.
  void called() {
    {
      const std::lock_guard lock(mutex_);
      calling_ = false;
    }
    run_all();
  }
  /// Returns when all that was added before has run.
  void run_all() {
    std::unique_lock turn(running_, std::try_to_lock);
    for (rma::Rest rest(0, 0); !turn.owns_lock() && rest.spin_or_yield(kOwnYields);) (void)turn.try_lock();
    if (!turn.owns_lock()) turn.lock();
    {
      const std::lock_guard lock(mutex_);
      taken_.swap(items_);
    }
    for (Item& item : taken_) item();
    taken_.clear();
  }

 private:
  std::mutex running_;
  std::vector<Item> taken_;  // by the thread that has locked `running_`
  std::mutex mutex_;
  std::vector<Item> items_;
  bool calling_ = false;  // the stream has a call of `called` in front of it
};

HostLine::HostLine(const Context& context)
    : own_(HostStream({.name = "stream MPI"})), own_items_(std::make_shared<OwnItems>()), limit_(context.timeout()) {}

HostLine::HostLine(const Context& context, sluice_host_stream* const* variable)
    : variable_(variable), limit_(context.timeout()) {}

void HostLine::enqueue(Step* step, OperationList operations) {
  const auto is_same = [](const auto& one, const auto* other) { return one == *other; };
  std::shared_ptr<const Batch> batch = last_.lock();
  if (batch == nullptr || !std::ranges::equal(batch->operations, operations, is_same)) {
    Operations kept;
    kept.reserve(operations.size());
    for (const auto* operation : operations) kept.push_back(*operation);
    batch = std::make_shared<const Batch>(Batch{std::move(kept), faults_, limit_});
  }
  last_ = batch;
  Item item(step, std::move(batch));
  if (!own_) return (*variable_)->stream.run(std::move(item));
  if (own_items_->full()) own_items_->run_all();
  if (!own_items_->add(std::move(item))) return;
  try {
    own_->run([items = own_items_] { items->called(); });
  } catch (...) {
    own_items_->not_called();
    throw;
  }
}

void HostLine::start(OperationList operations) { enqueue(Batch::start_all, operations); }

void HostLine::wait_all(OperationList operations) { enqueue(Batch::complete_all, operations); }

void HostLine::await_here() {
  const auto reached = std::make_shared<Mark::Flag>(false);
  (*variable_)->stream.run(Mark(reached));
  for (rma::Rest rest(0, 0); !reached->load(std::memory_order_acquire);)
    if (!rest.spin_or_yield(kOwnYields)) return reached->wait(false, std::memory_order_acquire);
}

int HostLine::wait() {
  if (own_) {
    own_items_->run_all();
  } else {
    await_here();
  }
  return faults_->take();
}

}  // namespace sluice::stream_mpi
