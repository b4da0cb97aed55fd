// SPDX-License-Identifier: Apache-2.0
// Epochs between groups of ranks. A target's `post` is a mark in a list in the origin's words, put there by
// compare-and-swap, which `start` removes. A call may know a better way for ranks that have met.
#pragma once

#include <sluice/types.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "rma/first_failure.hpp"
#include "rma/words.hpp"

namespace sluice::rma {

/// A mark of this rank that `post` makes in the list of an origin.
struct Mark {
  Rank origin = 0;
  std::size_t place = 0;  ///< offset of the place to try
  bool made = false;
};

/// The epochs of one rank. `call`: see epochs.hpp. After an error, each call but `complete` goes on where it was when
/// it is made again; `complete` does so after a timeout.
class Posts {
 public:
  Posts(Rank rank, int size) : rank_(rank), size_(size) {}

  bool posted() const noexcept { return posted_; }
  bool started() const noexcept { return started_; }
  bool accesses(Rank target) const { return started_ && std::ranges::find(accessed_, target) != accessed_.end(); }

  void post(auto& call, std::span<const Rank> origins) {
    if (posted_ || !marks_.empty()) call.misuse("post before the wait of the last one, or beside a post");
    std::size_t reached = 0;
    try {
      for (; reached < origins.size(); ++reached) {
        const Rank origin = origins[reached];
        const bool told = (!told_.empty() && told_.contains(origin)) || call.signal_post(origin);
        if (!told) marks_.push_back({origin});
      }
      if (!marks_.empty()) make_marks(call, marks_);
    } catch (...) {
      const auto marks = std::exchange(marks_, {});
      told_.insert(origins.begin(), origins.begin() + static_cast<std::ptrdiff_t>(reached));
      for (const Mark& mark : marks)
        if (!mark.made) told_.erase(mark.origin);
      throw;
    }
    told_.clear();
    exposed_to_.assign(origins.begin(), origins.end());
    completed_ = 0;
    posted_ = true;
  }

  void start(auto& call, std::span<const Rank> targets) {
    std::size_t arrived = 0;
    try {
      for (; arrived < targets.size(); ++arrived) await_post(call, targets[arrived]);
    } catch (...) {
      arrived_.insert(targets.begin(), targets.begin() + static_cast<std::ptrdiff_t>(arrived));
      throw;
    }
    if (!arrived_.empty())
      for (const Rank target : targets) arrived_.erase(target);
    accessed_.assign(targets.begin(), targets.end());
    ended_ = 0;
    started_ = true;
  }

  void complete(auto& call) {
    if (!started_) call.misuse("complete without start");
    FirstFailure failure(call.kRepeats);
    for (const Rank target : accessed_) failure.of([&] { call.flush(target); });
    for (; ended_ < accessed_.size(); ++ended_) failure.of([&] { call.signal_complete(accessed_[ended_]); });
    started_ = false;
    failure.report();
  }

  void wait(auto& call) {
    if (!posted_) call.misuse("wait without post");
    for (; completed_ < exposed_to_.size(); ++completed_) call.take_complete(exposed_to_[completed_]);
    posted_ = false;
  }

  bool test(auto& call) {
    if (!posted_) call.misuse("test without post");
    for (; completed_ < exposed_to_.size(); ++completed_)
      if (!call.take_complete_now(exposed_to_[completed_])) return false;
    posted_ = false;
    return true;
  }

 private:
  /// The place in a list that a target tries after so many others. Among up to kPostCount ranks the first is its own.
  static std::size_t place_of(Rank target, std::size_t attempts) {
    return at::kPosts + (static_cast<std::size_t>(target) + attempts) % at::kPostCount * kWord;
  }
  static std::uint64_t mark_of(Rank target) { return static_cast<std::uint64_t>(target) + 1; }

  /// Takes those that are made out of `left`.
  void make_marks(auto& call, std::vector<Mark>& left) const {
    const auto try_all_places = [&] {
      for (std::size_t attempts = 0; attempts < at::kPostCount && !left.empty(); ++attempts) {
        for (Mark& mark : left) mark.place = place_of(rank_, attempts);
        call.compare_swap(left, mark_of(rank_), [&](Mark& mark) {
          mark.made = true;
          call.met_origin(mark.origin);
        });
        std::erase_if(left, [](const Mark& mark) { return mark.made; });
      }
      return left.empty();
    };
    if (!try_all_places()) call.await(left.front().origin, "the list of posts at an origin is full", try_all_places);
  }

  /// True if the mark of the target was in the list of this rank.
  bool remove_mark(auto& call, Rank target) const {
    const std::size_t places = static_cast<std::size_t>(size_) <= at::kPostCount ? 1 : at::kPostCount;
    for (std::size_t attempts = 0; attempts < places; ++attempts) {
      const auto word = call.own(place_of(target, attempts));
      if (word.load(std::memory_order_acquire) != mark_of(target)) continue;
      word.store(0, std::memory_order_release);
      return true;
    }
    return false;
  }

  void await_post(auto& call, Rank target) {
    if (!arrived_.empty() && arrived_.contains(target)) return;
    if (call.take_post(target)) return;
    call.reach(target);  // so that its loss is noticed
    const auto marked = [&] { return remove_mark(call, target); };
    if (!marked()) call.await(target, "a target has not called post", marked);
    call.met_target(target);
  }

  Rank rank_;
  int size_;
  std::vector<Rank> exposed_to_;
  std::size_t completed_ = 0;      // of these origins
  std::vector<Mark> marks_;        // that the `post` under way has still to make
  std::unordered_set<Rank> told_;  // origins, by a `post` that ran out of time
  bool posted_ = false;
  std::vector<Rank> accessed_;
  std::size_t ended_ = 0;             // of these targets, by `complete`
  std::unordered_set<Rank> arrived_;  // posts that a `start` has taken which ran out of time
  bool started_ = false;
};

}  // namespace sluice::rma
