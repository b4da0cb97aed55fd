// SPDX-License-Identifier: Apache-2.0
// Random accesses of several ranks to one window, checked against what they may have done: atomics change each word in
// one order, and notifications are neither lost nor early.
#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/random_seed.hpp"
#include "tests/conformance/windows.hpp"

namespace {

using namespace sluice;
using namespace sluice::test;

/// Does nothing for a while, or lets others go first.
void pause_at_random(std::mt19937_64& random) {
  switch (random() % 8) {
    case 0: return std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
    case 1:
    case 2: return std::this_thread::yield();
    default: return;
  }
}

Case with_three_ranks(Case one) {
  one.ranks = 3;
  return one;
}

// ---- atomics

/// An atomic that a rank has issued, and the value that it has found.
struct Change {
  enum class Kind : std::uint64_t { add, swap, compare_swap };
  Kind kind{};
  std::uint64_t word = 0;
  std::uint64_t operand = 0;
  std::uint64_t compare = 0;
  std::uint64_t old = 0;
  std::uint64_t phase = 0;  // that all ranks begin together
  std::uint64_t group = 0;  // of this rank: those between two flushes

  std::uint64_t after() const {
    if (kind == Kind::add) return old + operand;
    return kind == Kind::swap || old == compare ? operand : old;
  }
};

/// The changes of one word by all ranks. There is one order in which each finds what the one before has left, since no
/// value comes twice.
class Chain {
 public:
  void add(Rank rank, const Change& change) {
    auto& from = by_old_[change.old];
    (change.after() == change.old ? from.idle : from.changing).push_back({rank, change});
    ++left_;
  }

  /// Follows it from `value` on; returns what the last one has left.
  std::uint64_t follow(std::uint64_t value) {
    for (auto found = by_old_.find(value); found != by_old_.end(); found = by_old_.find(value)) {
      Found here = std::move(found->second);
      by_old_.erase(found);
      std::ranges::stable_sort(here.idle, {}, [](const Of& one) { return one.second.phase; });
      for (const auto& [rank, change] : here.idle) passed(rank, change);
      EXPECT_LE(here.changing.size(), 1U) << "several have found " << value;
      if (here.changing.empty()) break;
      const auto& [rank, change] = here.changing.front();
      passed(rank, change);
      value = change.after();
    }
    EXPECT_EQ(left_, 0U) << "changes have found a value that was never there, or one that another had changed";
    return value;
  }

 private:
  using Of = std::pair<Rank, Change>;
  struct Found {
    std::vector<Of> idle;      // leave the value as it is
    std::vector<Of> changing;  // one, or it was not atomic
  };

  /// It comes after all of earlier phases, and after those of its rank that were flushed before.
  void passed(Rank rank, const Change& change) {
    --left_;
    EXPECT_GE(change.phase, phase_) << "before one of an earlier phase";
    phase_ = std::max(phase_, change.phase);
    std::uint64_t& group = group_[rank];
    EXPECT_GE(change.group, group) << "rank " << rank << ": before one that was flushed";
    group = std::max(group, change.group);
  }

  std::map<std::uint64_t, Found> by_old_;
  std::map<Rank, std::uint64_t> group_;
  std::uint64_t phase_ = 0;
  std::size_t left_ = 0;
};

constexpr std::size_t kChained = 3, kSum = kChained, kDouble = kSum + 1, kWords = kDouble + 1;
constexpr std::size_t kUnflushed = 8;  // between two flushes, at most

/// The window: the words; then the log of each rank.
std::size_t log_bytes(std::uint64_t changes) { return (changes + kUnflushed) * sizeof(Change) + kWord; }

/// The random atomics of one rank.
class Changer {
 public:
  Changer(WindowSide& side, std::uint64_t seed) : side_(side), random_(seed), last_(kChained, 0) {}

  void issue_group(std::uint64_t phase) {
    const std::size_t first = log_.size();
    const std::size_t count = 1 + random_() % kUnflushed;
    for (std::size_t i = 0; i < count; ++i) {
      Change change = choose();
      change.phase = phase;
      change.group = group_;
      issue(change, i);
      log_.push_back(change);
      if (random_() % 4 == 0) add_to_sums(i);
      pause_at_random(random_);
    }
    side_.flush();
    for (std::size_t i = 0; i < count; ++i) {
      Change& change = log_[first + i];
      change.old = word_at(side_.local.bytes(), i);
      last_[change.word] = change.after();
    }
    ++group_;
  }
  const std::vector<Change>& log() const { return log_; }
  std::uint64_t sum() const { return sum_; }

 private:
  Change choose() {
    Change change;
    change.kind = static_cast<Change::Kind>(random_() % 3);
    change.word = random_() % kChained;
    change.operand = random_();  // no two are the same
    change.compare = random_() % 8 == 0 ? random_() : last_[change.word];
    return change;
  }
  void issue(const Change& change, std::size_t i) {
    const Slice old = side_.piece(i * kWord, kWord);
    const std::size_t at = change.word * kWord;
    switch (change.kind) {
      case Change::Kind::add: return side_.target.fetch_add(side_.stream(), at, change.operand, old);
      case Change::Kind::swap: return side_.target.swap(side_.stream(), at, change.operand, old);
      case Change::Kind::compare_swap:
        return side_.target.compare_swap(side_.stream(), at, change.compare, change.operand, old);
    }
  }
  /// Numbers that are whole, so that their sums are exact.
  void add_to_sums(std::size_t i) {
    const std::uint64_t number = 1 + random_() % 1000;
    const Slice whole = side_.piece((kUnflushed + 2 * i) * kWord, kWord);
    const Slice real = side_.piece((kUnflushed + 2 * i + 1) * kWord, kWord);
    const auto as_double = static_cast<double>(number);
    std::memcpy(whole.data(), &number, kWord);
    std::memcpy(real.data(), &as_double, kWord);
    side_.target.accumulate(side_.stream(), Op::sum, Number::uint64, whole, kSum * kWord);
    side_.target.accumulate(side_.stream(), Op::sum, Number::float64, real, kDouble * kWord);
    sum_ += number;
  }

  WindowSide& side_;
  std::mt19937_64 random_;
  std::vector<Change> log_;
  std::vector<std::uint64_t> last_;  // the value of each word, as far as this rank knows
  std::uint64_t group_ = 0;
  std::uint64_t sum_ = 0;
};

class WindowOracle : public testing::TestWithParam<Case> {};

TEST_P(WindowOracle, changes_of_a_word_form_one_chain) {
  const std::uint64_t seed = random_seed();
  run_peers(with_three_ranks(GetParam()).peers(), [seed](Context& context) {
    constexpr std::uint64_t kPhases = 4;
    const std::uint64_t changes = (GetParam().ground.slow ? 10 : 50) * kPhases * random_rounds();
    const auto ranks = static_cast<std::size_t>(context.size());
    const std::size_t each = log_bytes(changes);
    WindowSide side(context, GetParam(), kWords * kWord + ranks * each, std::max(each, 3 * kUnflushed * kWord));
    if (context.rank() == 0) std::ranges::fill(side.memory.bytes(), std::byte{0});
    board().meet(context);
    Changer changer(side, seed + static_cast<std::uint64_t>(context.rank()));
    for (std::uint64_t phase = 1; phase <= kPhases; ++phase) {
      while (changer.log().size() < phase * changes / kPhases) changer.issue_group(phase);
      board().meet(context);
    }
    board().word(kWords).fetch_add(changer.sum());
    const std::size_t bytes = changer.log().size() * sizeof(Change);
    std::memcpy(side.local.bytes().data(), changer.log().data(), bytes);
    side.target.put(side.stream(), side.piece(0, bytes),
                    kWords * kWord + static_cast<std::size_t>(context.rank()) * each);
    board().set(static_cast<std::size_t>(context.rank()), changer.log().size());
    side.meet();
    if (context.rank() != 0) return board().meet(context);
    const auto window = side.memory.bytes();
    std::vector<Chain> chains(kChained);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::vector<Change> log(board().word(rank).load());
      std::memcpy(log.data(), window.data() + kWords * kWord + rank * each, log.size() * sizeof(Change));
      for (const Change& change : log) chains.at(change.word).add(static_cast<Rank>(rank), change);
    }
    for (std::size_t word = 0; word < kChained; ++word)
      EXPECT_EQ(chains[word].follow(0), word_at(window, word)) << "word " << word << ", seed " << seed;
    double sum = 0;
    std::memcpy(&sum, window.data() + kDouble * kWord, sizeof sum);
    EXPECT_EQ(word_at(window, kSum), board().word(kWords).load()) << "seed " << seed;
    EXPECT_EQ(sum, static_cast<double>(board().word(kWords).load())) << "seed " << seed;
    board().meet(context);
  });
}

// ---- notifications

constexpr std::size_t kSlot = 3000;  // bytes of an access, at most
constexpr std::uint64_t kTags = 3;
constexpr std::size_t kEachCount = 4;  // accesses of a rank before the next counter

/// An access that tells its owner. Each has a slot of its own here and in the window.
struct Notified {
  bool get = false;
  bool tagged = false;
  std::uint32_t number = 0;  // tag or counter
  std::size_t slot = 0;
  std::size_t bytes = 0;
  Stamp stamp;  // of the bytes that move
};

/// The accesses of one rank, which the owner knows too.
std::vector<Notified> plan_of(std::uint64_t seed, Rank rank, std::size_t count, bool tags) {
  std::mt19937_64 random(seed + 1000 * static_cast<std::uint64_t>(rank));
  std::vector<Notified> all;
  for (std::size_t i = 0; i < count; ++i) {
    Notified one;
    one.get = random() % 3 == 0;
    one.tagged = tags && random() % 2 == 0;
    one.number = static_cast<std::uint32_t>(one.tagged ? random() % kTags : i / kEachCount);
    one.slot = static_cast<std::size_t>(rank - 1) * count + i;
    one.bytes = random() % (std::size_t{2} << random() % 11) % kSlot;
    one.stamp = {one.get ? 0 : rank, kTag, one.slot + 1};
    all.push_back(one);
  }
  return all;
}

/// The owner, which knows what it is to be told.
class Listener {
 public:
  Listener(WindowSide& side, std::uint64_t seed, std::size_t count, bool tags) : side_(side), random_(seed) {
    for (Rank rank = 1; rank < side.context.size(); ++rank) {
      for (const Notified& one : plan_of(seed, rank, count, tags)) {
        if (one.get) fill(bytes_of(one), one.stamp);
        if (one.tagged) {
          noticed_[rank].push_back(one);
          ++notices_;
        } else {
          counted_[one.number].push_back(one);
        }
      }
    }
  }

  void listen() {
    std::set<std::uint32_t> left;
    for (const auto& [counter, all] : counted_) {
      if (!side_.order.host()) {
        left.insert(counter);
        continue;
      }
      side_.window.wait(side_.stream(), counter, all.size());
      side_.order.run([this, told = &all] {
        for (const Notified& one : *told) check(one);
      });
    }
    while (!left.empty() || notices_ != 0) {
      if (notices_ != 0) match_one();
      if (!left.empty()) look_at_one(left);
    }
    side_.context.synchronize(side_.stream());
  }
  void expect_no_more() {
    for (const auto& [counter, all] : counted_) EXPECT_EQ(side_.window.count(counter), all.size()) << counter;
    EXPECT_FALSE(side_.window.match(kAnySource, kAnyTag, 0ns));
  }

 private:
  std::span<std::byte> bytes_of(const Notified& one) {
    return side_.memory.bytes().subspan(one.slot * kSlot, one.bytes);
  }
  /// Its bytes are here, or were read and may be overwritten.
  void check(const Notified& one) {
    if (one.get) return poison(bytes_of(one));
    EXPECT_EQ(difference(bytes_of(one), one.stamp), "") << "told before its bytes: slot " << one.slot;
  }
  Timeout at_most() { return std::chrono::microseconds(random_() % 1000); }

  void look_at_one(std::set<std::uint32_t>& left) {
    const std::uint32_t counter = *std::next(left.begin(), static_cast<std::ptrdiff_t>(random_() % left.size()));
    const auto& all = counted_.at(counter);
    EXPECT_LE(side_.window.count(counter), all.size());
    if (!side_.window.wait_for(counter, all.size(), at_most())) return;
    for (const Notified& one : all) check(one);
    left.erase(counter);
  }
  void match_one() {
    const Rank source = random_() % 2 == 0 ? kAnySource : static_cast<Rank>(1 + random_() % noticed_.size());
    const Tag tag = random_() % 2 == 0 ? kAnyTag : static_cast<Tag>(random_() % kTags);
    const auto notice = side_.window.match(source, tag, at_most());
    if (!notice) return;
    auto& of_source = noticed_.at(notice->source);
    const auto first = std::ranges::find_if(of_source, [&](const Notified& one) {
      return tag == kAnyTag || one.number == static_cast<std::uint32_t>(tag);
    });
    if (first == of_source.end()) throw std::runtime_error("a notice too many");
    EXPECT_EQ(notice->tag, first->number);
    EXPECT_EQ(notice->offset, first->slot * kSlot);
    EXPECT_EQ(notice->bytes, first->bytes);
    check(*first);
    of_source.erase(first);
    --notices_;
  }

  WindowSide& side_;
  std::mt19937_64 random_;
  std::map<std::uint32_t, std::vector<Notified>> counted_;  // by counter
  std::map<Rank, std::deque<Notified>> noticed_;
  std::size_t notices_ = 0;
};

/// Each access once, at random times; then checks what was got.
void tell(WindowSide& side, const std::vector<Notified>& all, std::mt19937_64 random) {
  std::size_t i = 0;
  for (const Notified& one : all) {
    const Slice here = side.piece(i++ * kSlot, one.bytes);
    const std::size_t there = one.slot * kSlot;
    if (!one.get) fill(bytes_of(here), one.stamp);
    if (one.get && one.tagged) side.target.get_tagged(side.stream(), here, there, one.number);
    if (one.get && !one.tagged) side.target.get_notify(side.stream(), here, there, one.number);
    if (!one.get && one.tagged) side.target.put_tagged(side.stream(), here, there, one.number);
    if (!one.get && !one.tagged) side.target.put_notify(side.stream(), here, there, one.number);
    if (random() % 8 == 0) side.target.flush(side.stream());
    pause_at_random(random);
  }
  side.flush();
  i = 0;
  for (const Notified& one : all) {
    const auto here = side.local.bytes().subspan(i++ * kSlot, kSlot);
    EXPECT_EQ(difference(here.first(one.bytes), one.stamp), "") << "slot " << one.slot;
    EXPECT_EQ(unlike_poison(here.subspan(one.bytes)), "") << "slot " << one.slot;
  }
}

TEST_P(WindowOracle, notifications_are_neither_lost_nor_early) {
  const std::uint64_t seed = random_seed();
  run_peers(with_three_ranks(GetParam()).peers(), [seed](Context& context) {
    const Case& one = GetParam();
    const testing::ScopedTrace trace(__FILE__, __LINE__, "seed " + std::to_string(seed));
    const std::size_t count = (one.ground.slow ? 30 : 120) * random_rounds();
    const auto sources = static_cast<std::size_t>(context.size()) - 1;
    WindowSide side(context, one, sources * count * kSlot, count * kSlot,
                    static_cast<std::uint32_t>((count + kEachCount - 1) / kEachCount));
    if (context.rank() == 0) {
      Listener listener(side, seed, count, !one.cuda);
      board().meet(context);
      listener.listen();
      board().meet(context);
      listener.expect_no_more();
    } else {
      board().meet(context);
      tell(side, plan_of(seed, context.rank(), count, !one.cuda),
           std::mt19937_64(seed + static_cast<std::uint64_t>(context.rank())));
      board().meet(context);
    }
    board().meet(context);
  });
}

INSTANTIATE_IN_ITS_RANKS(Quick, WindowOracle, testing::ValuesIn(of_windows()), CaseName());

}  // namespace
