// SPDX-License-Identifier: Apache-2.0
// The protocol of locks step by step: between any two steps of one rank, others may do anything.
#include "rma/locks.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

namespace {

using sluice::Rank;
using sluice::rma::Locks;

struct Blocked {};
struct Misuse {};

/// The words of two ranks, in memory that all map.
struct Words {
  std::map<std::pair<Rank, std::size_t>, std::uint64_t> words;
  int steps_until = -1;  // so many additions come before `between`
  std::function<void()> between = [] {};
};

/// A `Call` of rma::Epochs. A wait runs `waiting` once, and then gives up if it was in vain.
class Call {
 public:
  explicit Call(Words& words, std::function<void()> waiting = {}) : words_(words), waiting_(std::move(waiting)) {}

  static constexpr bool kRepeats = false;
  static int size() { return 2; }
  void reach(Rank) const {}
  static bool maps(Rank) { return true; }
  std::uint64_t add(Rank rank, std::size_t offset, std::uint64_t value) {
    if (words_.steps_until-- == 0) words_.between();
    std::uint64_t& word = words_.words[{rank, offset}];
    return std::exchange(word, word + value);
  }
  void subtract_later(Rank rank, std::size_t offset, std::uint64_t lock) { add(rank, offset, 0 - lock); }
  void await(Rank, const char*, auto ready) {
    if (waiting_) waiting_();
    if (!ready()) throw Blocked();
  }
  void flush(Rank) const {}
  [[noreturn]] static void misuse(const std::string&, Rank) { throw Misuse(); }

 private:
  Words& words_;
  std::function<void()> waiting_;
};

/// False: it waits, and has given up.
bool locks_alone(Words& words, Locks& locks) {
  Call call(words);
  try {
    locks.lock(call, 1, Locks::Kind::exclusive, true);
  } catch (const Blocked&) {
    return false;
  }
  return true;
}
bool locks_all(Words& words, Locks& locks) {
  Call call(words);
  try {
    locks.lock_all(call, true);
  } catch (const Blocked&) {
    return false;
  }
  return true;
}

constexpr int kMoreSteps = 20;  // than any call has

/// `work` of one rank, with all of `other` of another one before each of its steps, and after the last.
template <class Work, class Other>
void expect_one_holds(Work work, Other other) {
  for (int step = 0; step < kMoreSteps; ++step) {
    Words words;
    Locks ours;
    Locks theirs;
    bool they_hold = false;
    words.steps_until = step;
    words.between = [&] { they_hold = other(words, theirs); };
    const bool we_hold = work(words, ours);
    if (std::exchange(words.steps_until, -1) >= 0) words.between();
    EXPECT_FALSE(we_hold && they_hold) << "before step " << step;
  }
}

TEST(WindowLockSteps, the_first_lock_all_comes_between_any_two_of_an_exclusive_lock) {
  expect_one_holds(locks_alone, locks_all);
}

TEST(WindowLockSteps, the_first_exclusive_lock_comes_between_any_two_of_a_lock_all) {
  expect_one_holds(locks_all, locks_alone);
}

TEST(WindowLockSteps, an_awaited_lock_is_not_unlocked_by_another_thread) {
  Words words;
  Locks holder;
  Locks locks;
  Call of_holder(words);
  holder.lock(of_holder, 1, Locks::Kind::exclusive, true);
  bool refused = false;
  Call call(words, [&] {
    EXPECT_THROW(locks.unlock(of_holder, 1), Misuse);
    refused = true;
    locks.lock(of_holder, 0, Locks::Kind::shared, true);
    holder.unlock(of_holder, 1);
  });
  locks.lock(call, 1, Locks::Kind::exclusive, true);
  EXPECT_TRUE(refused);
  locks.unlock(of_holder, 0);
  locks.unlock(of_holder, 1);
  EXPECT_FALSE(locks.any());
  EXPECT_TRUE(locks_all(words, holder));
}

}  // namespace
