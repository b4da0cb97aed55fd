// SPDX-License-Identifier: Apache-2.0
// Operations in the order of a host stream: the thread of the stream carries them out, or a host that waits.
#include "dialects/common/host_line.hpp"

#include <sluice/error.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/limit.hpp"
#include "base/words.hpp"
#include "dialects/common/outcome.hpp"
#include "dialects/common/progress.hpp"
#include "rma/rest.hpp"

namespace sluice::stream_mpi {
namespace {

constexpr const char* kWhere = "stream MPI, on a host stream";
constexpr auto kOwnYields = std::chrono::milliseconds(1);

template <class Work>
void noting(Faults& faults, Work work) {
  faults.note(guarded(kWhere, work));
}

/// Goes on with an operation. True: it is complete, or has failed.
bool advances(Operation& operation, Faults& faults) {
  bool complete = true;
  noting(faults, [&] { complete = operation.advance(); });
  return complete;
}

using Unfinished = std::vector<Operation*>;

/// Raises a word when the stream has run it, or has stopped and destroys it.
class Mark {
 public:
  struct Reached {
    base::Word word;
    base::Parking parking;

    explicit operator bool() const noexcept { return base::reached(word, 1); }
  };

  explicit Mark(std::shared_ptr<Reached> reached) : reached_(std::move(reached)) {}
  Mark(Mark&&) noexcept = default;
  Mark(const Mark&) = delete;
  Mark& operator=(Mark&&) = delete;
  Mark& operator=(const Mark&) = delete;
  ~Mark() {
    if (reached_ != nullptr) base::raise(reached_->word, 1, reached_->parking);
  }

  void operator()() const noexcept {}

 private:
  std::shared_ptr<Reached> reached_;
};

}  // namespace

/// The operations of a start or a wait.
struct HostLine::Group {
  Group(OperationList list, Faults& met, Timeout longest);

  bool is_of(OperationList list) const noexcept {
    return std::ranges::equal(operations, list, [](const auto& one, const auto* other) { return one == *other; });
  }
  void enqueued() noexcept {
    items_.enqueued();
    for (const auto& operation : operations) operation->enqueued();
  }
  /// Fails all operations: their item does not run.
  void give_up() const noexcept {
    for (const auto& operation : operations) operation->give_up();
  }
  /// The last use by an item: then the group may be destroyed.
  void passed() noexcept;
  bool in_use() const noexcept { return items_.in_use(); }
  bool any_ended() const noexcept {
    return std::ranges::any_of(operations, [](const auto& operation) { return operation->ended(); });
  }

  static void start_all(const Group& group) {
    for (const auto& operation : group.operations) noting(group.faults, [&] { operation->start(); });
  }
  static void complete_all(const Group& group);

  Operations operations;
  Unfinished active;   ///< of these, those that peers need
  Unfinished passive;  ///< the others
  bool starts_shortly;
  Faults& faults;
  Timeout limit;

 private:
  void complete_in_turns(std::size_t first) const;
  void finish(const Unfinished& some) const;

  ItemCount items_;
};

HostLine::Group::Group(OperationList list, Faults& met, Timeout longest) : faults(met), limit(longest) {
  for (const auto* operation : list) {
    operations.push_back(*operation);
    ((*operation)->passive() ? passive : active).push_back(operation->get());
  }
  const auto is_short = [](const auto& operation) { return operation->starts_shortly(); };
  starts_shortly = std::ranges::all_of(operations, is_short);
}

void HostLine::Group::passed() noexcept {
  for (const auto& operation : operations) operation->passed();
  base::light_fence();
  for (const auto& operation : operations) operation->give_up_if_last();
  items_.passed();
}

/// Blocks for those that peers need nothing of once the others are complete.
void HostLine::Group::complete_all(const Group& group) {
  for (std::size_t i = 0; i < group.active.size(); ++i)
    if (!advances(*group.active[i], group.faults)) return group.complete_in_turns(i);
  group.finish(group.passive);
}

void HostLine::Group::finish(const Unfinished& some) const {
  for (Operation* const operation : some) noting(faults, [&] { operation->finish(); });
}

/// Of those that peers need the last one may block: a peer that is late holds no other back.
void HostLine::Group::complete_in_turns(std::size_t first) const {
  constexpr auto kNap = std::chrono::microseconds(50);
  static thread_local Unfinished left;  // keeps its memory from item to item
  left.assign(active.begin() + static_cast<std::ptrdiff_t>(first), active.end());
  std::optional<base::Limit> overall;  // a wait for what has arrived reads no clock
  for (rma::Rest rest(0); left.size() > 1;) {
    if (std::erase_if(left, [&](Operation* one) { return advances(*one, faults); }) > 0) {
      rest = rma::Rest(0);
      continue;
    }
    if (!overall) overall.emplace(limit);
    if (overall->over()) {
      for (Operation* const late : left) late->give_up();
      for (Operation* const late : passive) late->give_up();
      throw Refused(MPI_ERR_OTHER, "a wait has lasted longer than SLUICE_TIMEOUT");
    }
    if (!rest.spin_or_yield(kOwnYields)) std::this_thread::sleep_for(kNap);
  }
  finish(left);
  finish(passive);
}

/// A program starts and waits for a few lists again and again, so each is copied once.
class HostLine::Groups {
 public:
  Group& of(OperationList operations, Faults& faults, Timeout limit) {
    for (std::size_t i = 0; i < recent_.size(); ++i) {
      if (recent_[last_]->is_of(operations)) return *recent_[last_];
      if (++last_ == recent_.size()) last_ = 0;
    }
    auto made = std::make_unique<Group>(operations, faults, limit);
    last_ = 0;
    std::erase_if(recent_, [](const auto& group) { return !group->in_use() && group->any_ended(); });
    if (recent_.size() == kRecent) {
      left_.push_back(std::move(recent_.front()));
      recent_.erase(recent_.begin());
    }
    end_passed(2);  // one is added in a call, so those that have passed become fewer
    recent_.push_back(std::move(made));
    last_ = recent_.size() - 1;
    return *recent_.back();
  }
  void end_all_passed() { end_passed(left_.size()); }
  bool in_use() const noexcept {
    const auto is_used = [](const auto& group) { return group->in_use(); };
    return std::ranges::any_of(recent_, is_used) || std::ranges::any_of(left_, is_used);
  }

 private:
  static constexpr std::size_t kRecent = 8;  // as many are looked through

  /// Looks at so many of `left_`, in turn, and ends those that no item uses.
  void end_passed(std::size_t looks) {
    for (; looks > 0 && !left_.empty(); --looks) {
      if (next_ >= left_.size()) next_ = 0;
      if (left_[next_]->in_use()) {
        ++next_;
        continue;
      }
      std::swap(left_[next_], left_.back());
      left_.pop_back();
    }
  }

  std::vector<std::unique_ptr<Group>> recent_;
  std::size_t last_ = 0;                      // the place in `recent_` of the one that was used last
  std::vector<std::unique_ptr<Group>> left_;  // older ones, in any order, as long as items use them
  std::size_t next_ = 0;                      // the place in `left_` to look at next
};

struct HostLine::Shared {
  Faults faults;
  Groups groups;
};

/// An item of the program's stream. A stream that has stopped destroys it without running it, which fails its
/// operations.
class HostLine::Item {
 public:
  Item(Step* step, Group& group) : step_(step), group_(&group) {}
  Item(Item&& other) noexcept : step_(other.step_), group_(std::exchange(other.group_, nullptr)) {}
  Item(const Item&) = delete;
  Item& operator=(Item&&) = delete;
  Item& operator=(const Item&) = delete;
  ~Item() {
    if (group_ == nullptr) return;
    group_->faults.note(MPI_ERR_OTHER);
    group_->give_up();
    group_->passed();
  }

  void operator()() {
    Group& group = *std::exchange(group_, nullptr);
    noting(group.faults, [&] { step_(group); });
    group.passed();
  }

 private:
  Step* step_;
  Group* group_;
};

/// Items of a stream of the line's own, in order. The stream's thread or the host runs them, one of them at a time.
class HostLine::OwnItems {
 public:
  /// By the host. True: the caller enqueues a call of `called` on the stream.
  bool add(Step* step, Group& group) {
    const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
    items_[tail % kMost] = {step, &group};
    tail_.store(tail + 1, std::memory_order_release);
    base::light_fence();  // either this sees that `called` has begun, or `called` sees the item
    if (called_.load(std::memory_order_relaxed)) return false;
    called_.store(true, std::memory_order_relaxed);  // no other thread does
    return true;
  }
  /// The stream has refused that call: the next item needs another.
  void not_called() noexcept { called_.store(false, std::memory_order_relaxed); }
  /// By the host: as full as a host stream that holds its host back.
  bool full() const noexcept {
    return tail_.load(std::memory_order_relaxed) - head_.load(std::memory_order_acquire) == kMost;
  }
  /// By the host: runs the step now if no item is left, and no other thread runs one. False: it has not run.
  bool run_behind_nothing(Step* step, const Group& group) {
    if (head_.load(std::memory_order_acquire) != tail_.load(std::memory_order_relaxed) || !take_turn_at_once())
      return false;
    noting(group.faults, [&] { step(group); });
    give_turn();
    return true;
  }
  /// On the stream.
  void called() {
    called_.store(false, std::memory_order_relaxed);
    base::heavy_fence();
    take_turn();
    run_items();
    give_turn();
  }
  /// By the host: returns when all that was added before has run.
  void run_all() {
    const MpiProgress progress;
    take_turn();
    run_items();
    head_.store(0, std::memory_order_relaxed);  // the next items lie where the last ones did, in the processor's cache
    tail_.store(0, std::memory_order_relaxed);
    give_turn();
  }

 private:
  struct Entry {
    Step* step;
    Group* group;
  };
  static constexpr std::uint64_t kMost = 65536;

  bool take_turn_at_once() noexcept {
    return !running_.load(std::memory_order_relaxed) && !running_.exchange(true, std::memory_order_acquire);
  }
  void take_turn() {
    constexpr std::chrono::nanoseconds kLongestNap = std::chrono::milliseconds(1);
    rma::Rest rest(0, 0);
    while (!take_turn_at_once())
      if (!rest.spin_or_yield(kOwnYields))
        std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(rest.lasted() / 20, kLongestNap));
  }
  /// By the thread that has the turn.
  void run_items() {
    std::uint64_t head = head_.load(std::memory_order_relaxed);
    while (head != tail_.load(std::memory_order_acquire)) {
      const auto [step, group] = items_[head % kMost];
      noting(group->faults, [step = step, group = group] { step(*group); });
      group->passed();
      head_.store(++head, std::memory_order_release);
    }
  }
  void give_turn() noexcept { running_.store(false, std::memory_order_release); }

  std::unique_ptr<Entry[]> items_{new Entry[kMost]};  // no page is touched before it is used
  std::atomic<std::uint64_t> tail_{0};                // by the host
  std::atomic<std::uint64_t> head_{0};                // by the thread that has the turn
  std::atomic<bool> running_{false};                  // a thread has it
  std::atomic<bool> called_{false};                   // the stream has a call of `called` in front of it
};

HostLine::HostLine(const Context& context)
    : limit_(context.timeout()), shared_(std::make_unique<Shared>()), own_items_(std::make_shared<OwnItems>()),
      own_(HostStream({.name = "stream MPI"})) {}

HostLine::HostLine(const Context& context, sluice_host_stream* const* variable)
    : limit_(context.timeout()), shared_(std::make_unique<Shared>()), variable_(variable) {}

HostLine::~HostLine() {
  own_.reset();
  keep_while_used(std::move(shared_));
}

/// Items that are left on a stream of the program use it: it ends with the first line after they have passed.
void HostLine::keep_while_used(std::unique_ptr<Shared> shared) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::unique_ptr<Shared>>;
  std::vector<std::unique_ptr<Shared>> unused;  // ends without the mutex, since channels may wait for their peers
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(shared));
  for (auto& one : kept)
    if (!one->groups.in_use()) unused.push_back(std::move(one));
  std::erase(kept, nullptr);
}

void HostLine::enqueue(Step* step, Group& group) {
  group.enqueued();
  if (!own_) {
    const MpiProgress progress;  // a full stream holds its host back
    return (*variable_)->stream.run(Item(step, group));
  }
  if (own_items_->full()) own_items_->run_all();
  if (!own_items_->add(step, group)) return;
  try {
    own_->run([items = own_items_] { items->called(); });
  } catch (...) {
    own_items_->not_called();
    throw;
  }
}

void HostLine::start(OperationList operations) {
  Group& group = shared_->groups.of(operations, shared_->faults, limit_);
  if (own_ && group.starts_shortly && own_items_->run_behind_nothing(Group::start_all, group)) return;
  enqueue(Group::start_all, group);
}

void HostLine::wait_all(OperationList operations) {
  enqueue(Group::complete_all, shared_->groups.of(operations, shared_->faults, limit_));
}

void HostLine::await_here() {
  const MpiProgress progress;
  const auto reached = std::make_shared<Mark::Reached>();
  (*variable_)->stream.run(Mark(reached));
  auto is_reached = [&] { return bool(*reached); };
  for (rma::Rest rest(0, 0); !is_reached();)
    if (!rest.spin_or_yield(kOwnYields)) base::park_until(reached->parking, is_reached, base::Clock::time_point::max());
}

int HostLine::wait() {
  if (own_) {
    own_items_->run_all();
  } else {
    await_here();
  }
  shared_->groups.end_all_passed();
  return shared_->faults.take();
}

}  // namespace sluice::stream_mpi
